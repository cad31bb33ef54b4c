#pragma once

#include <pthread.h>

#include "adio.h"
#include "adio/abi.h"
#include "adio/romio/plan.h"
#include "adio/romio/view.h"

// ROMIO's driver for Sluice files: translates and hands on.
//
// A collective write or read is direct list I/O, in which each rank turns its own memory type and view into
// extents and sends them itself, or two-phase, as the planner says (plan.h); then all ranks agree on the
// error. Open, sync, close and resize are done by rank 0 for all.
//
// fd->fp_ind, the individual file pointer, counts bytes of data from the start of the view for files of this
// driver, not bytes of the file. Only this driver reads it: ROMIO hands it back as `offset`, which is then
// ignored.

extern struct ADIOI_Fns_struct ADIO_SLUICE_operations;

// What a driver's file keeps in fd->fs_ptr.
struct SluiceState {
  const struct SluiceAbi* abi;
  struct SluiceFile* file;  // NULL before the open and after the close
  struct View view;
  int64_t piece_bytes;  // of all ranks' views, as the planner wants them: the same on all ranks
  int ordered;
  int64_t block_bytes;  // the mean block of the view with the largest; 0 without gaps
  int shape_asked;      // for a chunk that fits the view: once for each open
  int plan_shown;       // whether the file's info tells of a collective access, and which answer
  enum SluicePlanReason shown_plan;
  const struct TypeMap* byte_map;  // for transfers at absolute offsets
  char* hints;                     // rank 0's, as "name\0value\0...": the same on every rank
  size_t hints_bytes;
  struct SluiceError open_error;       // found while hints were read, where ROMIO cannot report it
  struct SluiceError pointer_error;    // of the shared file pointer; reported by the access that follows
  struct SluiceError late_error;       // of a nonblocking write; the next sync or close reports it
  int late_is_hearsay;                 // another rank's error is the cause of it
  struct SluiceError late_read_error;  // of a nonblocking read that the program may not know; for the close
  struct SluiceQueue* queue;           // accesses under way; NULL after the close
  struct SluiceStarted* split;         // the split collective access under way
  pthread_mutex_t mutex;               // guards fd->fp_ind
};

static inline struct SluiceState* sluice_state(ADIO_File fd) {
  return (struct SluiceState*)fd->fs_ptr;
}

static inline int sluice_owns(MPI_File fh) {
  return fh != MPI_FILE_NULL && fh->cookie == ADIOI_FILE_COOKIE && fh->fns == &ADIO_SLUICE_operations;
}

// The table of the client library, loaded on first use (adio/abi.h).
int sluice_abi_load(const struct SluiceAbi** abi, struct SluiceError* error);

enum SluiceDirection { SLUICE_TO_FILE, SLUICE_FROM_FILE };

// One access: `count` instances of `type` at `buffer`. Position: of the individual pointer, which is moved
// on, or, when `pointer` is ADIO_EXPLICIT_OFFSET, `offset` in etypes of the view.
struct SluiceAccess {
  const char* where;  // the MPI function
  enum SluiceDirection direction;
  void* buffer;
  MPI_Count count;
  MPI_Datatype type;
  int pointer;
  ADIO_Offset offset;
  int absolute;  // `offset` is in bytes of the file
};

// An access taken apart: where it goes in the view, how many bytes, and what they are in memory.
struct SluiceRequest {
  enum SluiceDirection direction;
  int atomic;
  struct View view;
  int64_t position;
  int64_t bytes;  // 0 when there is nothing to do, or an error
  const struct TypeMap* memory;
  void* buffer;
};
int sluice_prepare(ADIO_File fd, const struct SluiceAccess* access, struct SluiceRequest* request,
                   struct SluiceError* error);
// Any thread.
int sluice_carry_out(ADIO_File fd, const struct SluiceRequest* request, int64_t* done,
                     struct SluiceError* error);
// Gives back what the preparation took. After a failure the pointer stands behind what was transferred.
void sluice_end_access(ADIO_File fd, const struct SluiceAccess* access, const struct SluiceRequest* request,
                       int64_t done, const struct SluiceError* error);

// The ranks that aggregate, into ROMIO's own places for them, at the open. Collective; the error is the same
// on all ranks. By default every rank does; fewer (cb_nodes) are spread over the hosts, unless a
// cb_config_list says where they are.
int sluice_choose_aggregators(ADIO_File fd, int listed, struct SluiceError* error);
void sluice_all_aggregate(ADIO_File fd);
// Replaces hints by the values in effect, once the file's chunk is known.
void sluice_settle_hints(ADIO_File fd);

// Collective: learns what the planner wants to know of the view that was set.
void sluice_plan_view_facts(ADIO_File fd);
// The planner's answer for an access, the same on all ranks; collective. Ranks with nothing to transfer, or
// with an error, take part all the same. Fills `domains` for two phases.
enum SluicePlanReason sluice_plan(ADIO_File fd, const struct SluiceRequest* request,
                                  enum SluiceDirection direction, struct SluiceDomains* domains);
// Whether the view is one for two phases: then sluice_plan decides. The same on all ranks, and local.
int sluice_may_exchange(ADIO_File fd, enum SluiceDirection direction);
// Collective: before the first collective write through a view of large blocks, asks for a chunk that holds
// them, which the file takes while it is empty. Not before a nonblocking one, whose call may not wait.
void sluice_shape(ADIO_File fd, enum SluiceDirection direction);
// Tells of a collective access, in the file's info and to the client library: the answer, and what was sent
// to other ranks.
void sluice_show_plan(ADIO_File fd, enum SluicePlanReason reason, int64_t exchanged);
// The same of one that was started, and is direct.
void sluice_show_started(ADIO_File fd, enum SluiceDirection direction);

// What one rank's access came to, in bytes: transferred for this rank, and sent to other ranks.
struct SluiceMoved {
  int64_t done;
  int64_t exchanged;
};
// Collective. Every rank gets its own `*moved` and `*error`, which is not agreed on yet.
void sluice_two_phase(ADIO_File fd, const struct SluiceDomains* domains, const struct SluiceRequest* request,
                      struct SluiceMoved* moved, struct SluiceError* error);

// Does this rank's part. `*done` is set to the bytes transferred, also on failure.
int sluice_transfer(ADIO_File fd, const struct SluiceAccess* access, int64_t* done,
                    struct SluiceError* error);
// The same on all ranks, who agree on the error; `error` may already hold one of this rank's.
int sluice_transfer_all(ADIO_File fd, const struct SluiceAccess* access, int64_t* done,
                        struct SluiceError* error);

// Starts an access that goes on while the program computes, and makes its request, whose status counts what
// was transferred. Waits for no other rank. `*error` may hold an error of the arguments, and gets what the
// start meets; its code is the answer. A collective access takes part all the same, and has a request, unless
// there was no memory for one.
struct SluiceConversion;
int sluice_start(ADIO_File fd, const struct SluiceAccess* access, const struct SluiceConversion* conversion,
                 int collective, struct SluiceError* error, MPI_Request* request);
// The same for the split collective access. Collective: it is started on all ranks or on none.
int sluice_split_begin(ADIO_File fd, const struct SluiceAccess* access,
                       const struct SluiceConversion* conversion, struct SluiceError* error);
// Collective. Answers an error code.
int sluice_split_end(ADIO_File fd, MPI_Status* status);

// Before this rank waits for others, who may wait for its part in accesses that were started, and before it
// says anything on a file's communicator: returns when the bytes of its collective ones have moved, and their
// agreements are on their way.
void sluice_start_agreements(void);

// NULL when memory ran out. sluice_queue_close gives it back.
struct SluiceQueue* sluice_queue_new(void);
// Returns when every access that was started here has moved its bytes, or failed.
void sluice_queue_settle(ADIO_File fd);
// What was started here until now and failed has been told by a sync, and is not told by the next one.
void sluice_queue_told(ADIO_File fd);
// Collective, before the file is closed: returns when every access is over on all ranks.
void sluice_queue_close(ADIO_File fd);

// Collective: takes a view into use. The file keeps its old one when this fails.
int sluice_set_view(ADIO_File fd, ADIO_Offset disp, MPI_Datatype etype, MPI_Datatype filetype,
                    struct SluiceError* error);
// Collective: every rank's writes have reached the service, or nobody succeeds.
int sluice_flush_all(ADIO_File fd, struct SluiceError* error);
void sluice_state_free(ADIO_File fd);

// The driver's slots.
void ADIOI_SLUICE_Open(ADIO_File fd, int* error_code);
void ADIOI_SLUICE_OpenColl(ADIO_File fd, int rank, int access_mode, int* error_code);
void ADIOI_SLUICE_ReadContig(ADIO_File fd, void* buf, int count, MPI_Datatype datatype, int file_ptr_type,
                             ADIO_Offset offset, ADIO_Status* status, int* error_code);
void ADIOI_SLUICE_WriteContig(ADIO_File fd, const void* buf, int count, MPI_Datatype datatype,
                              int file_ptr_type, ADIO_Offset offset, ADIO_Status* status, int* error_code);
void ADIOI_SLUICE_ReadStridedColl(ADIO_File fd, void* buf, int count, MPI_Datatype datatype,
                                  int file_ptr_type, ADIO_Offset offset, ADIO_Status* status,
                                  int* error_code);
void ADIOI_SLUICE_WriteStridedColl(ADIO_File fd, const void* buf, int count, MPI_Datatype datatype,
                                   int file_ptr_type, ADIO_Offset offset, ADIO_Status* status,
                                   int* error_code);
ADIO_Offset ADIOI_SLUICE_SeekIndividual(ADIO_File fd, ADIO_Offset offset, int whence, int* error_code);
void ADIOI_SLUICE_Fcntl(ADIO_File fd, int flag, ADIO_Fcntl_t* fcntl, int* error_code);
void ADIOI_SLUICE_SetInfo(ADIO_File fd, MPI_Info users_info, int* error_code);
void ADIOI_SLUICE_ReadStrided(ADIO_File fd, void* buf, int count, MPI_Datatype datatype, int file_ptr_type,
                              ADIO_Offset offset, ADIO_Status* status, int* error_code);
void ADIOI_SLUICE_WriteStrided(ADIO_File fd, const void* buf, int count, MPI_Datatype datatype,
                               int file_ptr_type, ADIO_Offset offset, ADIO_Status* status, int* error_code);
void ADIOI_SLUICE_Close(ADIO_File fd, int* error_code);
void ADIOI_SLUICE_IreadContig(ADIO_File fd, void* buf, int count, MPI_Datatype datatype, int file_ptr_type,
                              ADIO_Offset offset, ADIO_Request* request, int* error_code);
void ADIOI_SLUICE_IwriteContig(ADIO_File fd, const void* buf, int count, MPI_Datatype datatype,
                               int file_ptr_type, ADIO_Offset offset, ADIO_Request* request, int* error_code);
int ADIOI_SLUICE_IODone(ADIO_Request* request, ADIO_Status* status, int* error_code);
void ADIOI_SLUICE_IOComplete(ADIO_Request* request, ADIO_Status* status, int* error_code);
void ADIOI_SLUICE_IreadStrided(ADIO_File fd, void* buf, int count, MPI_Datatype datatype, int file_ptr_type,
                               ADIO_Offset offset, ADIO_Request* request, int* error_code);
void ADIOI_SLUICE_IwriteStrided(ADIO_File fd, const void* buf, int count, MPI_Datatype datatype,
                                int file_ptr_type, ADIO_Offset offset, ADIO_Request* request,
                                int* error_code);
void ADIOI_SLUICE_Flush(ADIO_File fd, int* error_code);
void ADIOI_SLUICE_Resize(ADIO_File fd, ADIO_Offset size, int* error_code);
void ADIOI_SLUICE_Delete(const char* filename, int* error_code);
int ADIOI_SLUICE_Feature(ADIO_File fd, int flag);
void ADIOI_SLUICE_IreadStridedColl(ADIO_File fd, void* buf, int count, MPI_Datatype datatype,
                                   int file_ptr_type, ADIO_Offset offset, ADIO_Request* request,
                                   int* error_code);
void ADIOI_SLUICE_IwriteStridedColl(ADIO_File fd, const void* buf, int count, MPI_Datatype datatype,
                                    int file_ptr_type, ADIO_Offset offset, ADIO_Request* request,
                                    int* error_code);
int ADIOI_SLUICE_SetLock(ADIO_File fd, int command, int type, ADIO_Offset offset, int whence,
                         ADIO_Offset length);
