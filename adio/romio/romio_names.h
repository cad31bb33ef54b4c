#pragma once

#include "adio.h"

// ROMIO's own definitions of what Sluice defines in front of them (link_border.sh renames them). They serve
// every file that is not Sluice's.

int romio_File_open(MPI_Comm comm, const char* name, int amode, MPI_Info info, MPI_File* fh);
int romio_File_close(MPI_File* fh);
int romio_File_delete(const char* name, MPI_Info info);
int romio_File_set_view(MPI_File fh, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype,
                        const char* datarep, MPI_Info info);
int romio_File_set_info(MPI_File fh, MPI_Info info);
int romio_File_set_size(MPI_File fh, MPI_Offset size);
int romio_File_set_atomicity(MPI_File fh, int flag);
int romio_File_preallocate(MPI_File fh, MPI_Offset size);
int romio_File_seek(MPI_File fh, MPI_Offset offset, int whence);
int romio_File_seek_shared(MPI_File fh, MPI_Offset offset, int whence);
int romio_File_get_position_shared(MPI_File fh, MPI_Offset* offset);

void romio_ADIOI_process_system_hints(ADIO_File fd, MPI_Info info);
void romio_ADIO_Get_shared_fp(ADIO_File fd, ADIO_Offset increment, ADIO_Offset* position, int* error_code);
void romio_ADIO_Set_shared_fp(ADIO_File fd, ADIO_Offset position, int* error_code);
void romio_ADIOI_Get_position(ADIO_File fd, ADIO_Offset* offset);
void romio_ADIOI_Get_eof_offset(ADIO_File fd, ADIO_Offset* offset);
void romio_ADIOI_Get_byte_offset(ADIO_File fd, ADIO_Offset offset, ADIO_Offset* disp);

// Every MPI_File function here has its profiling name first and the plain one as a weak alias.
#define SLUICE_MPI_ALIAS(name) _Pragma(SLUICE_MPI_TEXT(weak MPI_##name = PMPI_##name))
#define SLUICE_MPI_TEXT(text) #text
