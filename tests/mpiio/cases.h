#pragma once

#include "tests/mpiio/check.h"

// One function for each behaviour of MPI-IO that real programs stumbled on; cases.c chooses by number.
// `prefix` is that of every file name: "sluice:/..." or a directory.

void case_01_short_collective_reads(const char* prefix);
void case_02_short_strided_read(const char* prefix);
void case_03_effective_hints_given_back(const char* prefix);
void case_04_plain_names_with_colons(const char* prefix);
void case_05_resized_lower_bound(const char* prefix);
void case_06_error_on_one_rank(const char* prefix);
void case_07_beyond_two_gib(const char* prefix);
void case_08_aggregators_hint(const char* prefix);
void case_09_neighbours_keep_their_bytes(const char* prefix);
void case_10_views_that_overlap(const char* prefix);
void case_11_leading_empty_blocks(const char* prefix);
void case_12_shared_pointer(const char* prefix);
void case_13_no_file_locks(const char* prefix);
void case_14_pointers(const char* prefix);
void case_15_short_write(const char* prefix);
void case_16_unknown_hints(const char* prefix);
void case_17_open_fails_for_all(const char* prefix);
void case_18_read_only_users(const char* prefix);

// Shared by the cases. Opens a new file, of which nothing was there before, on all ranks.
MPI_File case_create(const char* path);
// Closes it and takes it away.
void case_remove(MPI_File* file, const char* path);
