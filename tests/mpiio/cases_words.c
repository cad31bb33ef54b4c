// Cases about names, hints, pointers and errors.

#include "tests/mpiio/cases.h"

void case_03_effective_hints_given_back(const char* prefix) {
  const char* path = check_path(prefix, "case03");
  MPI_File file;
  MPI_Info asked, effective;
  char value[MPI_MAX_INFO_VAL + 1];
  int found, keys, lowest, highest;
  MPI_Info_create(&asked);
  MPI_Info_set(asked, "romio_no_indep_rw", "true");
  CHECK_OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, asked, &file));
  CHECK_OK(MPI_File_get_info(file, &effective));
  CHECK_OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", effective));
  MPI_Info_get_nkeys(effective, &keys);
  for (int i = 0; i < keys; i++) {
    char key[MPI_MAX_INFO_KEY + 1];
    char first[MPI_MAX_INFO_VAL + 1];
    MPI_Info_get_nthkey(effective, i, key);
    MPI_Info_get(effective, key, MPI_MAX_INFO_VAL, value, &found);
    memcpy(first, value, sizeof first);
    MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
    CHECK(strcmp(first, value) == 0, "%s is %s here and %s on rank 0", key, value, first);
  }
  MPI_Allreduce(&keys, &lowest, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(&keys, &highest, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  CHECK_EQ(lowest, highest);
  // The word was not kept to: an independent write works all the same.
  CHECK_OK(MPI_File_write_at(file, check_rank, "x", 1, MPI_BYTE, MPI_STATUS_IGNORE));
  MPI_Info_free(&asked);
  MPI_Info_free(&effective);
  case_remove(&file, path);
}

void case_04_plain_names_with_colons(const char* prefix) {
  const char* path = check_path(prefix, "wrf_00:00:00");
  MPI_File file = case_create(path);
  MPI_Offset size;
  CHECK_OK(MPI_File_write_at_all(file, check_rank, "x", 1, MPI_BYTE, MPI_STATUS_IGNORE));
  CHECK_OK(MPI_File_close(&file));
  CHECK_OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
  CHECK_OK(MPI_File_get_size(file, &size));
  CHECK_EQ(size, check_ranks);
  case_remove(&file, path);
}

// The same class on all ranks; answers it.
static int agreed_class(int code) {
  const int mine = check_class(code);
  int lowest, highest;
  MPI_Allreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(&mine, &highest, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  CHECK_EQ(lowest, highest);
  return highest;
}

// All hear of it when they wait, and once more at the next sync.
static void nonblocking_error_on_one_rank(MPI_File file) {
  const long long value = check_rank;
  MPI_Request request;
  MPI_Status status;
  for (int fatal = 0; fatal < 2; fatal++) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, fatal ? MPI_ERRORS_ARE_FATAL : MPI_ERRORS_RETURN);
    CHECK_OK(MPI_File_iwrite_all(file, &value, 8, MPI_BYTE, &request));
    const int code = MPI_Wait(&request, &status);
    CHECK((code != MPI_SUCCESS) == !fatal, "MPI_Wait answers %d", code);
    CHECK_EQ(agreed_class(MPI_File_sync(file)), MPI_ERR_NO_SPACE);
    CHECK_OK(MPI_File_sync(file));
  }
}

static void exchanged_error_on_one_rank(MPI_File file) {
  enum { kPieces = 40000 };  // of 8 bytes: a domain for each rank
  static char memory[8 * kPieces];
  MPI_Datatype view;
  MPI_Status status;
  MPI_Type_create_hvector(kPieces, 8, 8 * check_ranks, MPI_BYTE, &view);
  MPI_Type_commit(&view);
  CHECK_OK(MPI_File_set_view(file, 8 * check_rank, MPI_BYTE, view, "native", MPI_INFO_NULL));
  const int code = MPI_File_write_at_all(file, 0, memory, sizeof memory, MPI_BYTE, &status);
  CHECK_EQ(agreed_class(code), MPI_ERR_NO_SPACE);
  CHECK_EQ(check_count(&status, MPI_BYTE), 0);
  CHECK_OK(MPI_File_read_at_all(file, 0, memory, sizeof memory, MPI_BYTE, &status));
  CHECK_OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
  MPI_Type_free(&view);
}

// Run with writes of rank 1 failing for want of space.
void case_06_error_on_one_rank(const char* prefix) {
  const char* path = check_path(prefix, "case06");
  MPI_File file = case_create(path);
  MPI_Status status;
  char text[MPI_MAX_ERROR_STRING];
  int length;
  const long long value = check_rank;
  int code = MPI_File_write_at_all(file, 8 * check_rank, &value, 8, MPI_BYTE, &status);
  CHECK_EQ(agreed_class(code), MPI_ERR_NO_SPACE);
  MPI_Error_string(code, text, &length);
  CHECK(strstr(text, "write fails as the test asked"), "the other rank's reason is lost: %s", text);
  code = MPI_File_write_all(file, &value, 8, MPI_BYTE, &status);
  CHECK_EQ(agreed_class(code), MPI_ERR_NO_SPACE);
  code = MPI_File_write_ordered(file, &value, 8, MPI_BYTE, &status);
  CHECK_EQ(agreed_class(code), MPI_ERR_NO_SPACE);
  CHECK_OK(MPI_File_write_all_begin(file, &value, 8, MPI_BYTE));
  CHECK_EQ(agreed_class(MPI_File_write_all_end(file, &value, &status)), MPI_ERR_NO_SPACE);
  nonblocking_error_on_one_rank(file);
  // The same in two phases, where rank 1 writes what others gave it.
  exchanged_error_on_one_rank(file);
  // An argument that is wrong on one rank only.
  code = MPI_File_write_at_all(file, check_rank == 1 ? -1 : 0, &value, 8, MPI_BYTE, &status);
  CHECK_EQ(agreed_class(code), MPI_ERR_ARG);
  code = MPI_File_write_at_all(file, 0, &value, check_rank == 0 ? -1 : 0, MPI_BYTE, &status);
  CHECK_EQ(agreed_class(code), MPI_ERR_COUNT);
  code = MPI_File_write_at_all_begin(file, check_rank == 1 ? -1 : 0, &value, 8, MPI_BYTE);
  CHECK_EQ(agreed_class(code), MPI_ERR_ARG);
  case_remove(&file, path);
}

static void expect_aggregators(const char* prefix, int asked, int expected) {
  const char* path = check_path(prefix, "case08");
  MPI_File file;
  MPI_Info info, effective;
  char value[MPI_MAX_INFO_VAL + 1];
  int found = 0;
  snprintf(value, sizeof value, "%d", asked);
  MPI_Info_create(&info);
  MPI_Info_set(info, "cb_nodes", value);
  CHECK_OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file));
  CHECK_OK(MPI_File_get_info(file, &effective));
  MPI_Info_get(effective, "cb_nodes", MPI_MAX_INFO_VAL, value, &found);
  CHECK(found && atoi(value) == expected, "cb_nodes=%d reads back \"%s\"", asked, value);
  // The same words a second time change nothing.
  CHECK_OK(MPI_File_set_info(file, effective));
  MPI_Info_free(&effective);
  CHECK_OK(MPI_File_get_info(file, &effective));
  MPI_Info_get(effective, "cb_nodes", MPI_MAX_INFO_VAL, value, &found);
  CHECK(found && atoi(value) == expected, "cb_nodes=%d given back reads \"%s\"", asked, value);
  MPI_Info_free(&info);
  MPI_Info_free(&effective);
  case_remove(&file, path);
}

void case_08_aggregators_hint(const char* prefix) {
  expect_aggregators(prefix, 4, check_ranks < 4 ? check_ranks : 4);
  expect_aggregators(prefix, 2, check_ranks < 2 ? check_ranks : 2);
  expect_aggregators(prefix, 0, check_ranks);
}

static void expect_refused_view(MPI_File file, MPI_Datatype type, const char* how) {
  char buffer[64] = {0};
  MPI_Offset offset;
  MPI_Datatype etype, filetype;
  char datarep[MPI_MAX_DATAREP_STRING];
  MPI_Type_commit(&type);
  // Wrong on the last rank only; everybody hears of it, and keeps the view from before.
  const int code = MPI_File_set_view(file, 0, MPI_BYTE, check_rank == check_ranks - 1 ? type : MPI_BYTE,
                                     "native", MPI_INFO_NULL);
  CHECK(agreed_class(code) != MPI_SUCCESS, "a view with %s was taken", how);
  CHECK_OK(MPI_File_get_view(file, &offset, &etype, &filetype, datarep));
  CHECK_EQ(offset, 0);
  CHECK_EQ(filetype, MPI_BYTE);
  CHECK_OK(MPI_File_write_at_all(file, 0, buffer, 64, MPI_BYTE, MPI_STATUS_IGNORE));
  MPI_Type_free(&type);
}

void case_10_views_that_overlap(const char* prefix) {
  const char* path = check_path(prefix, "case10");
  MPI_File file = case_create(path);
  const int lengths[3] = {4, 4, 4};
  const int decreasing[3] = {16, 8, 0};
  const int overlapping[3] = {0, 2, 8};
  MPI_Datatype type, row;
  MPI_Type_indexed(3, lengths, decreasing, MPI_BYTE, &type);
  expect_refused_view(file, type, "decreasing displacements");
  MPI_Type_indexed(3, lengths, overlapping, MPI_BYTE, &type);
  expect_refused_view(file, type, "overlapping blocks");
  MPI_Type_contiguous(8, MPI_BYTE, &row);
  MPI_Type_create_resized(row, 0, 4, &type);
  expect_refused_view(file, type, "instances that overlap");
  MPI_Type_free(&row);
  case_remove(&file, path);
}

// Fails where a file system's own locks are asked for: the driver takes none.
void case_13_no_file_locks(const char* prefix) {
  const char* path = check_path(prefix, "case13");
  MPI_File file = case_create(path);
  int flag = 0;
  int mine[100], got[100];
  CHECK_OK(MPI_File_set_atomicity(file, 1));
  CHECK_OK(MPI_File_get_atomicity(file, &flag));
  CHECK_EQ(flag, 1);
  // Everybody writes the same range at once, and reads it back: in atomic mode it is all of one rank.
  for (int round = 0; round < 10; round++) {
    for (int i = 0; i < 100; i++) {
      mine[i] = 100 * round + check_rank;
    }
    CHECK_OK(MPI_File_write_at(file, 0, mine, 100, MPI_INT, MPI_STATUS_IGNORE));
    CHECK_OK(MPI_File_read_at(file, 0, got, 100, MPI_INT, MPI_STATUS_IGNORE));
    for (int i = 1; i < 100; i++) {
      CHECK_EQ(got[i], got[0]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  case_remove(&file, path);
}

static void seek_to_end_far_away(MPI_File file) {
  MPI_Offset position;
  const MPI_Offset end = ((MPI_Offset)9 << 30) + 1;
  CHECK_OK(MPI_File_set_size(file, end));
  CHECK_OK(MPI_File_seek(file, 0, MPI_SEEK_END));
  CHECK_OK(MPI_File_get_position(file, &position));
  CHECK_EQ(position, end);
  CHECK_OK(MPI_File_seek(file, -end, MPI_SEEK_CUR));
  CHECK_OK(MPI_File_get_position(file, &position));
  CHECK_EQ(position, 0);
  CHECK_EQ(check_class(MPI_File_seek(file, -end - 1, MPI_SEEK_END)), MPI_ERR_ARG);
}

void case_14_pointers(const char* prefix) {
  const char* path = check_path(prefix, "case14");
  MPI_File file = case_create(path);
  MPI_Offset position;
  char byte = 'x';
  seek_to_end_far_away(file);
  CHECK_OK(MPI_File_set_size(file, 100));
  CHECK_OK(MPI_File_seek(file, 30, MPI_SEEK_SET));
  CHECK_OK(MPI_File_seek_shared(file, 40, MPI_SEEK_SET));
  CHECK_OK(MPI_File_set_view(file, 4, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
  CHECK_OK(MPI_File_get_position(file, &position));
  CHECK_EQ(position, 0);
  CHECK_OK(MPI_File_get_position_shared(file, &position));
  CHECK_EQ(position, 0);
  CHECK_OK(MPI_File_seek(file, 0, MPI_SEEK_END));
  CHECK_OK(MPI_File_get_position(file, &position));
  CHECK_EQ(position, 24);
  CHECK_OK(MPI_File_close(&file));
  CHECK_OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_WRONLY | MPI_MODE_APPEND, MPI_INFO_NULL, &file));
  CHECK_OK(MPI_File_get_position(file, &position));
  CHECK_EQ(position, 100);
  CHECK_OK(MPI_File_get_position_shared(file, &position));
  CHECK_EQ(position, 100);
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK_OK(MPI_File_write_shared(file, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE));
  CHECK_OK(MPI_File_sync(file));
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK_OK(MPI_File_get_size(file, &position));
  CHECK_EQ(position, 100 + check_ranks);
  case_remove(&file, path);
}

// Run with writes of rank 0 failing for want of space after half of their bytes.
void case_15_short_write(const char* prefix) {
  const char* path = check_path(prefix, "case15");
  MPI_File file = case_create(path);
  MPI_Status status;
  MPI_Offset position;
  const int numbers[8] = {0};
  int code = MPI_File_write_at(file, 0, numbers, 8, MPI_INT, &status);
  CHECK_EQ(check_class(code), check_rank == 0 ? MPI_ERR_NO_SPACE : MPI_SUCCESS);
  CHECK_EQ(check_count(&status, MPI_INT), check_rank == 0 ? 4 : 8);
  code = MPI_File_write(file, numbers, 8, MPI_INT, &status);
  CHECK_EQ(check_count(&status, MPI_INT), check_rank == 0 ? 4 : 8);
  CHECK_OK(MPI_File_get_position(file, &position));
  CHECK_EQ(position, check_rank == 0 ? 16 : 32);
  code = MPI_File_write_at_all(file, 0, numbers, 8, MPI_INT, &status);
  CHECK_EQ(agreed_class(code), MPI_ERR_NO_SPACE);
  CHECK_EQ(check_count(&status, MPI_INT), check_rank == 0 ? 4 : 8);
  case_remove(&file, path);
}

static void expect_refused_hint(const char* path, const char* key, const char* value, int expected,
                                const char* near) {
  MPI_File file;
  MPI_Info info;
  char text[MPI_MAX_ERROR_STRING];
  int length;
  MPI_Info_create(&info);
  if (check_rank == check_ranks - 1) {
    MPI_Info_set(info, key, value);
  }
  const int code = MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file);
  CHECK_EQ(agreed_class(code), expected);
  MPI_Error_string(code, text, &length);
  CHECK(strstr(text, key) && strstr(text, near), "the sentence names neither %s nor %s: %s", key, near, text);
  MPI_Info_free(&info);
}

void case_16_unknown_hints(const char* prefix) {
  const char* path = check_path(prefix, "case16");
  MPI_File file;
  MPI_Info info;
  expect_refused_hint(path, "sluice_chunksize", "1m", MPI_ERR_INFO_NOKEY, "sluice_chunk_size");
  expect_refused_hint(path, "sluice_chunk_size", "none", MPI_ERR_INFO_VALUE, "sluice_chunk_size");
  // Other libraries' hints are none of our business.
  MPI_Info_create(&info);
  MPI_Info_set(info, "panfs_concurrent_write", "1");
  CHECK_OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file));
  MPI_Info_free(&info);
  case_remove(&file, path);
}

void case_17_open_fails_for_all(const char* prefix) {
  const char* path = check_path(prefix, "case17");
  MPI_File file;
  int code = MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
  CHECK_EQ(agreed_class(code), MPI_ERR_NO_SUCH_FILE);
  file = case_create(path);
  CHECK_OK(MPI_File_close(&file));
  const int exclusive = MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR;
  code = MPI_File_open(MPI_COMM_WORLD, path, exclusive, MPI_INFO_NULL, &file);
  CHECK_EQ(agreed_class(code), MPI_ERR_FILE_EXISTS);
  // Different modes, a mode that no rank may have, and different files.
  code = MPI_File_open(MPI_COMM_WORLD, path, check_rank == 0 ? MPI_MODE_RDONLY : MPI_MODE_RDWR, MPI_INFO_NULL,
                       &file);
  CHECK_EQ(agreed_class(code), MPI_ERR_NOT_SAME);
  code = MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY | MPI_MODE_CREATE, MPI_INFO_NULL, &file);
  CHECK_EQ(agreed_class(code), MPI_ERR_AMODE);
  code = MPI_File_open(MPI_COMM_WORLD, check_rank == 0 ? path : "ufs:/nonexistent/file", MPI_MODE_RDWR,
                       MPI_INFO_NULL, &file);
  CHECK_EQ(agreed_class(code), MPI_ERR_NOT_SAME);
  code = MPI_File_open(MPI_COMM_WORLD, check_rank == 1 ? "sluice:/a/../b" : path, MPI_MODE_RDWR,
                       MPI_INFO_NULL, &file);
  CHECK_EQ(agreed_class(code), MPI_ERR_ARG);
  if (check_rank == 0) {
    CHECK_OK(MPI_File_delete(path, MPI_INFO_NULL));
    CHECK_EQ(check_class(MPI_File_delete(path, MPI_INFO_NULL)), MPI_ERR_NO_SUCH_FILE);
  }
}

void case_18_read_only_users(const char* prefix) {
  const char* path = check_path(prefix, "case18");
  MPI_File file = case_create(path);
  MPI_Status status;
  char byte = 0;
  CHECK_OK(MPI_File_write_at_all(file, 0, "x", 1, MPI_BYTE, &status));
  CHECK_OK(MPI_File_close(&file));
  CHECK_OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
  CHECK_OK(MPI_File_read_at_all(file, 0, &byte, 1, MPI_BYTE, &status));
  CHECK_EQ(byte, 'x');
  CHECK_EQ(check_class(MPI_File_write_at(file, 0, "y", 1, MPI_BYTE, &status)), MPI_ERR_READ_ONLY);
  CHECK_EQ(check_class(MPI_File_write_at_all(file, 0, "y", 1, MPI_BYTE, &status)), MPI_ERR_READ_ONLY);
  CHECK_EQ(check_class(MPI_File_preallocate(file, 100)), MPI_ERR_READ_ONLY);
  case_remove(&file, path);
}
