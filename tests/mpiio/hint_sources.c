// Where hints come from, and which of them counts: a file named by ROMIO_HINTS, the program's MPI_Info,
// MPICH_MPIIO_HINTS and SLUICE_HINTS, in rising order.
//
//   hint_sources good|unknown|long|long_file PREFIX

#include "tests/mpiio/check.h"

int check_failures, check_rank, check_ranks;

static const char kFile[] = "romio-hints";

// ROMIO reads it at the first open of the process.
static void write_hint_file(const char* lines) {
  if (check_rank == 0) {
    FILE* file = fopen(kFile, "w");
    CHECK(file && fputs(lines, file) >= 0 && fclose(file) == 0, "cannot write %s", kFile);
  }
  setenv("ROMIO_HINTS", kFile, 1);
  MPI_Barrier(MPI_COMM_WORLD);
}

static void expect(MPI_Info info, const char* name, const char* expected) {
  char value[MPI_MAX_INFO_VAL + 1] = "";
  int found = 0;
  MPI_Info_get(info, name, MPI_MAX_INFO_VAL, value, &found);
  CHECK(found && strcmp(value, expected) == 0, "%s is \"%s\", not \"%s\"", name, value, expected);
}

static void good_sources(const char* path) {
  MPI_File file;
  MPI_Info asked, effective;
  write_hint_file(
      "# of the site\n"
      "striping_factor 2\n"
      "striping_unit 65536\n"
      "sluice_lock_mode standard\n"
      "romio_ds_write disable\n");
  setenv("MPICH_MPIIO_HINTS", "*:sluice_lock_mode=lockahead:romio_cb_write=disable:romio_cb_read=disable", 1);
  setenv("SLUICE_HINTS",
         "*.none:sluice_object_class=S1,/hints*:cray_cb_write_lock_mode=1:romio_cb_read=enable:cb_buffer_size=xx", 1);
  MPI_Info_create(&asked);
  MPI_Info_set(asked, "sluice_lock_mode", "none");
  MPI_Info_set(asked, "striping_unit", "131072");
  MPI_Info_set(asked, "romio_cb_write", "enable");
  CHECK_OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, asked, &file));
  CHECK_OK(MPI_File_get_info(file, &effective));
  expect(effective, "striping_factor", "2");
  expect(effective, "sluice_object_class", "RP_2");
  expect(effective, "romio_ds_write", "disable");
  expect(effective, "sluice_lock_mode", "group");
  expect(effective, "cray_cb_write_lock_mode", "1");
  expect(effective, "romio_cb_write", "disable");
  expect(effective, "romio_cb_read", "enable");
  expect(effective, "cb_buffer_size", "4194304");
  expect(effective, "sluice_chunk_size", "131072");
  MPI_Info_free(&asked);
  MPI_Info_free(&effective);
  CHECK_OK(MPI_File_close(&file));
}

static void unknown_name(const char* path) {
  MPI_File file;
  write_hint_file("sluice_chunksize 64k\n");
  const int code = MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
  CHECK_EQ(check_class(code), MPI_ERR_INFO_NOKEY);
  CHECK(strstr(check_text(code), "sluice_chunk_size"), "the nearest is not named: %s", check_text(code));
}

static void expect_refused(const char* path, const char* source, const char* name) {
  MPI_File file;
  const int code = MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
  CHECK_EQ(check_class(code), MPI_ERR_INFO_VALUE);
  CHECK(strstr(check_text(code), source) && strstr(check_text(code), name), "%s and %s are not named: %s",
        source, name, check_text(code));
}

// What MPI does not take is an error of the open, whoever says it.
static void too_long(const char* path) {
  char name[300], value[2000], text[2400];
  MPI_File file;
  memset(name, 'k', sizeof name);
  name[sizeof name - 1] = '\0';
  memset(value, 'v', sizeof value);
  value[sizeof value - 1] = '\0';
  static const char* const kVariables[] = {"SLUICE_HINTS", "MPICH_MPIIO_HINTS"};
  // ROMIO reads its file once: at the first open it has to be a good one.
  write_hint_file("romio_ds_write disable\n");
  for (int i = 0; i < 2; i++) {
    snprintf(text, sizeof text, "*:cb_config_list=%s", value);
    setenv(kVariables[i], text, 1);
    expect_refused(path, kVariables[i], "cb_config_list");
    snprintf(text, sizeof text, "*:%s=1", name);
    setenv(kVariables[i], text, 1);
    expect_refused(path, kVariables[i], "kkkkkkkk");
    unsetenv(kVariables[i]);
  }
  CHECK_OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
  CHECK_OK(MPI_File_close(&file));
}

static void too_long_file(const char* path) {
  char text[2400] = "cb_config_list ";
  memset(text + strlen(text), 'v', 2000);
  write_hint_file(text);
  expect_refused(path, "ROMIO_HINTS", "vvvvvvvv");
  expect_refused(path, "ROMIO_HINTS", "vvvvvvvv");
}

int main(int argc, char** argv) {
  check_start(&argc, &argv);
  const char* path = check_path(argv[2], "hints");
  if (strcmp(argv[1], "good") == 0) {
    good_sources(path);
  } else if (strcmp(argv[1], "long") == 0) {
    too_long(path);
  } else if (strcmp(argv[1], "long_file") == 0) {
    too_long_file(path);
  } else {
    unknown_name(path);
  }
  return check_finish();
}
