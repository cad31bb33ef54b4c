"""sluice run: a service for the time of one MPI program."""

import os
import shutil
import signal
import subprocess
import sys
import unittest
from pathlib import Path

from harness import SLUICE, PoolTest, alive

# Writes as many MiB as its second argument says into the file that the first one names; keeps it open until the pipe
# that its third one names is open for writing.
WRITES = r"""
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char** argv) {
  MPI_File file;
  char text[MPI_MAX_ERROR_STRING];
  int length, code = 0, rank;
  const int mib = atoi(argv[2]);
  char* memory = calloc(mib, 1 << 20);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  code = MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
  if (!code) code = MPI_File_write_at_all(file, (MPI_Offset)rank * mib << 20, memory, mib << 20, MPI_BYTE, MPI_STATUS_IGNORE);
  if (argc > 3 && rank == 0) puts("waiting"), fflush(stdout);
  if (argc > 3) close(open(argv[3], O_RDONLY));
  if (!code) code = MPI_File_close(&file);
  if (code) MPI_Error_string(code, text, &length);
  if (rank == 0) puts(code ? text : "written");
  return MPI_Finalize() || code;
}
"""

# Names no function of MPI-IO itself.
HDF5 = r"""
#include <hdf5.h>
#include <stdio.h>
int main(int argc, char** argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
  hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, access);
  const int bad = file < 0 || H5Fclose(file) < 0;
  H5Pclose(access);
  if (rank == 0 && !bad) puts("written");
  return MPI_Finalize() || bad;
}
"""


class Run(PoolTest):
    def run_it(self, *words):
        return self.sluice("run", "--hot-size", "32M", *words)

    def test_the_programs_exit_code_is_ours(self):
        self.assertEqual(self.run_it("-n", "2", "--", "sh", "-c", "exit 0").code, 0)
        self.assertEqual(self.run_it("-n", "1", "--", "sh", "-c", "exit 7").code, 7)
        self.assertEqual(self.servers(), [])

    def test_ranks_have_the_library_and_the_pool(self):
        done = self.ok(self.run_it("-n", "2", "--", "sh", "-c", 'echo "$SLUICE_POOL $LD_PRELOAD"'))
        lines = done.out.splitlines()
        self.assertEqual(len(lines), 2, done)
        for line in lines:
            self.assertIn(str(self.pool), line)
            self.assertIn("libsluice_romio.so", line)

    def test_without_a_pool_the_files_stay_in_sluice_pool(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
        done = subprocess.run([SLUICE, "run", "--hot-size", "32M", "-n", "1", "--", "true"], cwd=self.scratch, env=env,
                              capture_output=True, text=True, check=False, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.scratch / "sluice-pool" / "pool.toml").exists())
        self.assertIn(str(self.scratch / "sluice-pool"), done.stderr)

    def test_a_service_that_was_there_stays(self):
        self.up()
        pid = self.server_pid()
        self.ok(self.sluice("run", "-n", "1", "--", "true"))
        self.assertEqual(self.server_pid(), pid)

    def test_options_that_contradict_the_pool_are_refused_and_nothing_runs(self):
        self.up()
        pid = self.server_pid()
        for option, asked in (("--class", "RP_2"), ("--targets", "5"), ("--hot-size", "64M"), ("--listen", "127.0.0.1:1")):
            self.fails(self.sluice("run", option, asked, "-n", "1", "--", "touch", self.scratch / "ran"), 4, option, self.pool)
        self.ok(self.sluice("run", "--class", "EC_2P1", "--hot-size", "32M", "-n", "1", "--", "true"))
        self.assertEqual(self.server_pid(), pid)
        self.ok(self.sluice("down"))
        self.fails(self.sluice("run", "--class", "RP_2", "-n", "1", "--", "touch", self.scratch / "ran"), 4, "--class")
        self.assertFalse((self.scratch / "ran").exists())

    def test_a_service_that_cannot_start_is_120_and_nothing_runs(self):
        self.up()
        self.kill_server()
        (self.pool / "hot" / "hot.pool").unlink()
        done = self.sluice("run", "-n", "1", "--", "touch", self.scratch / "ran")
        self.fails(done, 120, "hot.pool")
        (self.pool / "pool.toml").write_text("{{{")
        done = self.sluice("run", "-n", "1", "--", "touch", self.scratch / "ran")
        self.fails(done, 2, "pool.toml")
        self.assertFalse((self.scratch / "ran").exists())

    def test_a_drain_that_stays_blocked_is_121_and_the_data_is_drained_later(self):
        self.up()
        targets, away = self.pool / "targets", self.pool / "away"
        targets.rename(away)
        self.ok(self.sluice("cp", self.file("in"), "sluice:/x"))
        self.kill_server()
        done = self.sluice("run", "-n", "1", "--", "true")
        self.assertEqual(done.code, 121, done)
        self.assertIn("cannot be drained (blocked: ", done.err)
        self.assertEqual(self.servers(), [])
        away.rename(targets)
        self.ok(self.sluice("persist", "/x"))
        self.ok(self.sluice("cp", "sluice:/x", self.scratch / "out"))
        self.assertEqual((self.scratch / "out").read_bytes(), self.file("in").read_bytes())

    def test_a_killed_rank_leaves_no_service(self):
        checkpoint = Path(SLUICE).parent.parent / "bench" / "checkpoint"
        done = self.run_it("-n", "2", "--", checkpoint, "--path", "sluice:/killed.%d", "--size", "128", "--steps", "1",
                           "--kill-self", "1:H:1")
        self.assertNotEqual(done.code, 0, done)
        self.assertIn("what it had not synced or closed is dropped", done.err)
        self.assertEqual(self.servers(), [])

    def test_options_are_taken_as_mpirun_spells_them_and_unknown_ones_are_named(self):
        self.ok(self.run_it("-np", "1", "--", "true"))
        self.fails(self.sluice("run", "--rank", "2", "--", "true"), 2, "--rank", "sluice run --help")
        self.assertIn("sluice run -n 4", self.ok(self.sluice("help", "run")).out)

    def test_the_pool_of_a_run_without_a_name_is_found_by_the_other_commands(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
        for words in (["run", "--hot-size", "32M", "-n", "1", "--", "true"], ["ls", "/"]):
            done = subprocess.run([SLUICE, *words], cwd=self.scratch, env=env, capture_output=True, text=True,
                                  check=False, timeout=100)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_an_mpirun_that_is_not_there_is_122(self):
        self.fails(self.run_it("--mpirun", self.scratch / "nothing", "-n", "1", "--", "true"), 122, "nothing")
        self.assertEqual(self.servers(), [])

    def test_a_signal_is_passed_on_and_the_service_goes(self):
        env = dict(os.environ, SLUICE_POOL=str(self.pool))
        script = 'echo $$ > "$0"; exec sleep 100'
        run = subprocess.Popen([SLUICE, "run", "--hot-size", "32M", "-n", "1", "--", "sh", "-c", script, str(self.scratch / "pid")],
                               env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.wait_until(lambda: (self.scratch / "pid").exists() and (self.scratch / "pid").read_text().strip(), "the program runs")
        program = int((self.scratch / "pid").read_text())
        run.send_signal(signal.SIGTERM)
        _, err = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 128 + signal.SIGTERM, err)
        self.wait_until(lambda: not alive(program), "the program ends")
        self.assertEqual(self.servers(), [])

    def test_two_at_once_share_a_service_and_the_last_one_stops_it(self):
        env = dict(os.environ, SLUICE_POOL=str(self.pool))
        gate = self.scratch / "gate"
        os.mkfifo(gate)
        first = subprocess.Popen([SLUICE, "run", "--hot-size", "32M", "-n", "1", "--", "cat", str(gate)], env=env,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        writer = os.open(gate, os.O_WRONLY)  # waits for the program
        pid = self.server_pid()
        self.ok(self.sluice("run", "-n", "1", "--", "true"))
        self.assertTrue(alive(pid))
        self.assertEqual(self.server_pid(), pid)
        os.write(writer, b"done")
        os.close(writer)
        out, _ = first.communicate(timeout=60)
        self.assertEqual((first.returncode, out), (0, "done"))
        self.assertFalse(alive(pid))

    def test_up_makes_the_service_of_a_run_stay(self):
        env = dict(os.environ, SLUICE_POOL=str(self.pool))
        gate = self.scratch / "gate"
        os.mkfifo(gate)
        run = subprocess.Popen([SLUICE, "run", "--hot-size", "32M", "-n", "1", "--", "cat", str(gate)], env=env,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        writer = os.open(gate, os.O_WRONLY)
        pid = self.server_pid()
        self.ok(self.sluice("up"))
        os.close(writer)
        self.assertEqual(run.wait(timeout=60), 0)
        self.assertTrue(alive(pid))
        self.assertEqual(self.server_pid(), pid)

    def test_the_libraries_are_named_by_whole_paths(self):
        path = self.ok(self.sluice("preload")).out.strip()
        self.assertTrue(os.path.isabs(path) and os.path.exists(path))
        self.assertIn("-lsluice_romio", self.ok(self.sluice("libs")).out)

    def program(self, name, text, compiler="mpicc.mpich", flags=""):
        """A program of that text, linked with what `sluice libs` says."""
        (self.scratch / f"{name}.c").write_text(text)
        libs = self.ok(self.sluice("libs")).out.strip()
        self.ok(self.run_command("sh", "-c", f"{compiler} {name}.c {flags} {libs} -o {name}"))
        return self.scratch / name

    def test_the_flags_of_libs_have_effect_through_every_compiler_wrapper(self):
        wrappers = [w for w in ("mpicc.mpich", "h5pcc.mpich") if shutil.which(w)]
        self.assertIn("mpicc.mpich", wrappers)
        self.up()
        for number, wrapper in enumerate(wrappers):
            program = self.program(f"linked{number}", HDF5 if wrapper.startswith("h5") else WRITES, wrapper)
            self.assertRegex(self.ok(self.run_command("readelf", "-d", program)).out, r"NEEDED.*\[libsluice_romio\.so\]")
            done = self.ok(self.run_command("mpiexec.mpich", "-n", "2", program, f"sluice:/{number}", "1",
                                            env={"SLUICE_POOL": str(self.pool)}))
            self.assertIn("written", done.out)
            self.ok(self.sluice("stat", f"/{number}"))

    def test_down_says_that_programs_have_files_open(self):
        self.up()
        program = self.program("holds", WRITES)
        os.mkfifo(self.scratch / "end")
        held = subprocess.Popen(["mpiexec.mpich", "-n", "2", program, "sluice:/x", "1", self.scratch / "end"], text=True,
                                env=dict(os.environ, SLUICE_POOL=str(self.pool)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(held.kill)
        self.assertEqual(held.stdout.readline(), "waiting\n")
        said = self.ok(self.sluice("down")).err
        self.assertIn("2 processes have 1 file open", said)
        self.assertIn("up to 30 s", said)
        self.up()
        with open(self.scratch / "end", "w"):  # open for as long as a rank may still come to it
            self.assertEqual(held.communicate(timeout=60)[0], "written\n")
        self.assertNotIn("open", self.ok(self.sluice("down")).err)

    def test_a_hint_that_is_passed_over_is_told_once(self):
        self.up()
        program = self.program("hinted", WRITES)
        done = self.ok(self.run_command("mpiexec.mpich", "-n", "3", program, "sluice:/x", "1", env={
            "SLUICE_POOL": str(self.pool), "SLUICE_HINTS": "*:cb_buffer_size=xx:romio_cb_write=bogus:striping_unit=3000"}))
        for hint in ("cb_buffer_size=xx", "romio_cb_write=bogus", "striping_unit=3000"):
            self.assertEqual(done.err.count(f"the hint {hint} is passed over; it takes "), 1, done)

    def test_a_sentence_that_mpi_would_cut_keeps_its_next_step(self):
        self.up()
        program = self.program("writes", WRITES)
        (self.pool / "targets").rename(self.pool / "away")
        done = self.run_command("mpiexec.mpich", "-n", "1", program, "sluice:/x", "64", env={"SLUICE_POOL": str(self.pool)})
        self.assertNotEqual(done.code, 0)
        self.assertIn("is full", done.out)
        self.assertRegex(done.out, r"\.\.\.; free space on the targets, or make a pool with a larger --hot-size")


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=sys.argv)
