// Which ranks aggregate, and how much they hold: chosen by hints, over hosts that this program pretends to
// run on, and told by MPI_File_get_info the same on every rank.
//
//   aggregators PREFIX, on 5 ranks

#include "tests/mpiio/check.h"

int check_failures, check_rank, check_ranks;

// In front of libmpich's: two ranks on each of the hosts n0 and n1, the fifth on n2.
int PMPI_Get_processor_name(char* name, int* length) {
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  *length = snprintf(name, MPI_MAX_PROCESSOR_NAME, "n%d", rank / 2);
  return MPI_SUCCESS;
}

static void expect_value(MPI_Info info, const char* key, const char* expected) {
  char value[MPI_MAX_INFO_VAL + 1] = "";
  int found = 0;
  MPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &found);
  CHECK(found && strcmp(value, expected) == 0, "%s is \"%s\", not \"%s\"", key, value, expected);
}

static MPI_File open_with(const char* path, const char* nodes, const char* list, const char* buffer) {
  MPI_File file;
  MPI_Info info;
  MPI_Info_create(&info);
  if (nodes) {
    MPI_Info_set(info, "cb_nodes", nodes);
  }
  if (list) {
    MPI_Info_set(info, "cb_config_list", list);
  }
  if (buffer) {
    MPI_Info_set(info, "cb_buffer_size", buffer);
  }
  CHECK_OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file));
  MPI_Info_free(&info);
  return file;
}

static void expect_aggregators(const char* path, const char* nodes, const char* list, const char* count,
                               const char* ranks) {
  MPI_Info info;
  MPI_File file = open_with(path, nodes, list, NULL);
  CHECK_OK(MPI_File_get_info(file, &info));
  expect_value(info, "cb_nodes", count);
  expect_value(info, "romio_aggregator_list", ranks);
  MPI_Info_free(&info);
  CHECK_OK(MPI_File_close(&file));
}

// The chunk of these files is 64 KiB.
static void expect_buffer(const char* path, const char* asked, const char* effective) {
  MPI_Info info;
  MPI_File file = open_with(path, NULL, NULL, asked);
  CHECK_OK(MPI_File_get_info(file, &info));
  expect_value(info, "cb_buffer_size", effective);
  CHECK_OK(MPI_File_set_info(file, info));
  MPI_Info_free(&info);
  CHECK_OK(MPI_File_get_info(file, &info));
  expect_value(info, "cb_buffer_size", effective);
  MPI_Info_free(&info);
  CHECK_OK(MPI_File_close(&file));
}

static void expect_refused_list(const char* path) {
  MPI_File file;
  MPI_Info info;
  char text[MPI_MAX_ERROR_STRING];
  int length;
  MPI_Info_create(&info);
  MPI_Info_set(info, "cb_config_list", "elsewhere:1");
  const int code = MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file);
  CHECK_EQ(check_class(code), MPI_ERR_INFO_VALUE);
  MPI_Error_string(code, text, &length);
  CHECK(strstr(text, "cb_config_list=elsewhere:1"), "the sentence does not name the hint: %s", text);
  MPI_Info_free(&info);
}

int main(int argc, char** argv) {
  check_start(&argc, &argv);
  CHECK_EQ(check_ranks, 5);
  const char* path = check_path(argv[1], "aggregators");
  expect_aggregators(path, NULL, NULL, "5", "0 1 2 3 4 ");
  expect_aggregators(path, "3", NULL, "3", "0 2 4 ");
  expect_aggregators(path, "4", NULL, "4", "0 2 4 1 ");
  expect_aggregators(path, NULL, "*:1", "3", "0 2 4 ");
  expect_aggregators(path, NULL, "n1:2,n2:1", "3", "2 3 4 ");
  expect_aggregators(path, "1", "n1:*", "1", "2 ");
  expect_aggregators(path, "4", "*:*", "4", "0 1 2 3 ");
  expect_buffer(path, NULL, "4194304");
  expect_buffer(path, "1", "65536");
  expect_buffer(path, "200000", "196608");
  expect_buffer(path, "2000000000", "67108864");
  expect_refused_list(path);
  return check_finish();
}
