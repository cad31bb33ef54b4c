"""cp, ls, stat, rm, explain, persist, and the exit codes that scripts rely on."""

import json
import os
import signal
import sys
import unittest

from harness import SLUICE, PoolTest


class Files(PoolTest):
    def test_a_copy_goes_in_and_comes_out(self):
        self.up()
        for size in (0, 1, 65536, (5 << 20) + 7):
            local = self.file("in", size, seed=size)
            self.ok(self.sluice("cp", "--force", local, "sluice:/d/x"))
            stat = json.loads(self.ok(self.sluice("stat", "--json", "/d/x")).out)
            self.assertEqual(stat["size"], size)
            self.ok(self.sluice("cp", "--force", "sluice:/d/x", self.scratch / "out"))
            self.assertEqual((self.scratch / "out").read_bytes(), local.read_bytes())

    def test_stat_has_what_scripts_look_for(self):
        self.up()
        self.ok(self.sluice("cp", self.file("in", 3 << 20), "sluice:/x"))
        self.ok(self.sluice("persist", "/x"))
        stat = json.loads(self.ok(self.sluice("stat", "--json", "sluice:/x")).out)
        self.assertEqual(stat["size"], 3 << 20)
        self.assertEqual(stat["class"], "EC_2P1")
        self.assertGreaterEqual(stat["chunk_size"], 65536)
        self.assertGreaterEqual(stat["epochs"]["committed"], 1)
        self.assertEqual(stat["epochs"]["persisted"], stat["epochs"]["committed"])
        self.assertEqual(stat["hot_bytes"], 0)
        self.assertEqual(stat["drained_bytes"], 3 << 20)
        self.assertIn("3145728", self.ok(self.sluice("stat", "/x")).out)

    def test_what_is_committed_and_not_drained_is_called_that(self):
        self.up("--drain", "watermark")
        self.ok(self.sluice("cp", self.file("in", 1 << 20), "sluice:/x"))
        self.assertIn("(1.0 MiB not drained yet)", self.ok(self.sluice("ls", "-l")).out)
        self.assertIn("1048576 not drained yet", self.ok(self.sluice("stat", "/x")).out)

    def test_a_directory_is_removed_only_when_that_is_asked_for(self):
        self.up()
        for name in ("run/1", "run/2", "run/deep/3", "runs"):
            self.ok(self.sluice("cp", self.file("in", 100), f"sluice:/{name}"))
        for word in ("/run", "/run/", "sluice:/run"):
            self.fails(self.sluice("rm", word), 2, "/run is a directory with 3 files", "`sluice rm -r /run`")
        self.fails(self.sluice("rm", "-r", "/nowhere"), 3, "/nowhere")
        self.ok(self.sluice("rm", "-r", "/run/"))
        self.assertEqual(self.ok(self.sluice("ls", "-R", "/")).out.split(), ["/runs"])
        self.ok(self.sluice("rm", "-r", "/runs"))

    def test_nothing_is_replaced_unless_forced(self):
        self.up()
        first, second = self.file("1", seed=1), self.file("2", seed=2)
        self.ok(self.sluice("cp", first, "sluice:/x"))
        self.fails(self.sluice("cp", second, "sluice:/x"), 4, "sluice:/x", "--force")
        self.ok(self.sluice("cp", "sluice:/x", self.scratch / "out"))
        self.fails(self.sluice("cp", "sluice:/x", self.scratch / "out"), 4, "out", "--force")
        self.assertEqual((self.scratch / "out").read_bytes(), first.read_bytes())
        self.ok(self.sluice("cp", "--force", second, "sluice:/x"))
        self.ok(self.sluice("cp", "--force", "sluice:/x", self.scratch / "out"))
        self.assertEqual((self.scratch / "out").read_bytes(), second.read_bytes())

    def test_directories_take_the_name_of_the_source(self):
        self.up()
        local = self.file("name")
        self.ok(self.sluice("cp", local, "sluice:/d/"))
        (self.scratch / "to").mkdir()
        self.ok(self.sluice("cp", "sluice:/d/name", self.scratch / "to"))
        self.assertEqual((self.scratch / "to" / "name").read_bytes(), local.read_bytes())

    def test_a_sparse_file_stays_sparse(self):
        self.up()
        local = self.scratch / "sparse"
        with open(local, "wb") as out:
            out.truncate(512 << 20)  # much more than the hot tier
            out.seek(300 << 20)
            out.write(b"x" * 1000)
        self.ok(self.sluice("cp", local, "sluice:/x"))
        self.ok(self.sluice("cp", "sluice:/x", self.scratch / "out"))
        self.assertEqual((self.scratch / "out").stat().st_size, 512 << 20)
        self.assertLess((self.scratch / "out").stat().st_blocks * 512, 4 << 20)
        with open(self.scratch / "out", "rb") as copy:
            copy.seek((300 << 20) - 5)
            self.assertEqual(copy.read(1010), b"\0" * 5 + b"x" * 1000 + b"\0" * 5)

    def test_a_file_larger_than_the_hot_tier_passes_through(self):
        self.up()
        local = self.file("in", 80 << 20)
        self.ok(self.sluice("cp", local, "sluice:/x"))
        self.ok(self.sluice("cp", "sluice:/x", self.scratch / "out"))
        self.assertEqual((self.scratch / "out").read_bytes(), local.read_bytes())

    def test_ls_shows_one_level_or_all(self):
        self.up()
        local = self.file("in", 1000)
        for path in ("/a", "/d/b", "/d/c", "/d/e/f"):
            self.ok(self.sluice("cp", local, "sluice:" + path))
        self.assertEqual(self.ok(self.sluice("ls")).out.split(), ["a", "d/"])
        self.assertEqual(self.ok(self.sluice("ls", "/d")).out.split(), ["b", "c", "e/"])
        self.assertEqual(self.ok(self.sluice("ls", "-R", "sluice:/d/")).out.split(), ["/d/b", "/d/c", "/d/e/f"])
        self.assertIn("1000", self.ok(self.sluice("ls", "-l", "/a")).out)
        files = json.loads(self.ok(self.sluice("ls", "--json", "/")).out)
        self.assertEqual([f["path"] for f in files], ["/a", "/d/b", "/d/c", "/d/e/f"])
        self.fails(self.sluice("ls", "/nowhere"), 3, "/nowhere")

    def test_rm_removes_what_it_can_and_tells_the_rest(self):
        self.up()
        local = self.file("in", 1000)
        for path in ("/a", "/b", "/c"):
            self.ok(self.sluice("cp", local, "sluice:" + path))
        self.fails(self.sluice("rm", "/a", "/nowhere", "sluice:/b"), 3, "/nowhere")
        self.assertEqual(self.ok(self.sluice("ls")).out.split(), ["c"])
        self.ok(self.sluice("rm", "-f", "/nowhere", "/c"))
        self.assertEqual(self.ok(self.sluice("ls")).out, "")

    def test_persist_does_not_wait_for_a_drain_that_stays_blocked(self):
        self.up()
        self.ok(self.sluice("cp", self.file("in"), "sluice:/x"))
        self.ok(self.sluice("persist", "/x"))
        targets, away = self.pool / "targets", self.pool / "away"
        targets.rename(away)
        self.ok(self.sluice("cp", "--force", self.file("in", seed=2), "sluice:/x"))
        waiting = [self.start("persist", "/x"), self.start("persist", "--timeout", "60", "/"), self.start("down")]
        for process in waiting:
            self.fails(self.finish(process), 1, "cannot be drained", "blocked: ", "hot tier", "sluice status")
        away.rename(targets)
        self.ok(self.sluice("persist", "/x"))  # the service went on trying
        self.ok(self.sluice("cp", "sluice:/x", self.scratch / "out"))
        self.assertEqual((self.scratch / "out").read_bytes(), self.file("in", seed=2).read_bytes())

    def test_names_cannot_break_lines_or_steer_the_terminal(self):
        self.up()
        local = self.file("in", 1000)
        names = {"a\nb": "a\\nb", "a\\nb": "a\\\\nb", "\x1b[31mred": "\\x1b[31mred", "Grüße": "Grüße"}
        for name in names:
            self.ok(self.sluice("cp", local, "sluice:/d\r/" + name))
        self.assertEqual(self.ok(self.sluice("ls")).out, "d\\r/\n")
        self.assertEqual(sorted(self.ok(self.sluice("ls", "/d\r")).out.splitlines()), sorted(names.values()))
        self.assertEqual(sorted(self.ok(self.sluice("ls", "-R", "/")).out.splitlines()),
                         sorted("/d\\r/" + shown for shown in names.values()))
        self.assertEqual(len(self.ok(self.sluice("ls", "-l", "/d\r")).out.splitlines()), len(names))
        self.assertEqual({f["path"] for f in json.loads(self.ok(self.sluice("ls", "--json")).out)},
                         {"/d\r/" + name for name in names})
        for name, shown in names.items():
            self.assertEqual(self.ok(self.sluice("stat", "/d\r/" + name)).out.splitlines()[0].split(None, 1),
                             ["path", "/d\\r/" + shown])
            self.assertEqual(json.loads(self.ok(self.sluice("stat", "--json", "/d\r/" + name)).out)["path"], "/d\r/" + name)
            self.assertEqual(self.ok(self.sluice("explain", "/d\r/" + name)).out.splitlines()[0], "file: /d\\r/" + shown)
        self.fails(self.sluice("stat", "/no\n\x1b[31m"), 3, "/no\\n\\x1b[31m")

    def test_explain_says_something_of_the_layout(self):
        self.up()
        self.ok(self.sluice("cp", self.file("in"), "sluice:/x"))
        self.assertIn("EC_2P1", self.ok(self.sluice("explain", "/x")).out)

    def test_every_command_that_reports_does_so_in_json(self):
        self.up()
        for path in ("/a", "/b", "/c"):
            self.ok(self.sluice("cp", self.file("in"), "sluice:" + path))
        def told(*words, code=0):
            done = self.sluice(*words)
            self.assertEqual(done.code, code, done)
            return json.loads(done.out)

        explained = told("explain", "--json", "/a")
        self.assertEqual((explained["path"], explained["class"], explained["size"]), ("/a", "EC_2P1", 1 << 20))
        self.assertIn("file: /a", explained["explanation"])
        self.assertEqual([e["path"] for e in told("explain", "--json", "/a", "/nowhere", "/b", code=3)], ["/a", "/b"])
        persisted = told("persist", "--json", "/a")
        self.assertTrue(persisted["persisted"])
        self.assertEqual(persisted["epochs"]["committed"], persisted["epochs"]["persisted"])
        self.assertEqual(told("persist", "--json", "/"), {"path": "/", "persisted": True})
        self.assertEqual(told("rm", "--json", "/a"), {"path": "/a", "removed": True})
        self.assertEqual(told("rm", "--json", "/b", "/nowhere", code=3), [{"path": "/b", "removed": True}])
        self.assertEqual(told("rm", "--json", "-f", "/c", "/nowhere"),
                         [{"path": "/c", "removed": True}, {"path": "/nowhere", "removed": False}])
        self.assertEqual(told("down", "--json"), {"pool": str(self.pool), "stopped": True})
        self.assertEqual(told("down", "--json"), {"pool": str(self.pool), "stopped": False})

    def test_a_full_device_and_a_missing_source_leave_no_copy(self):
        self.up()
        self.ok(self.sluice("cp", self.file("in"), "sluice:/x"))
        self.fails(self.sluice("cp", "sluice:/x", "/dev/full"), 6, "/dev/full")
        self.fails(self.sluice("cp", self.scratch / "nothing", "sluice:/y"), 3, "nothing")
        self.fails(self.sluice("cp", "sluice:/nothing", self.scratch / "out"), 3, "/nothing")
        self.fails(self.sluice("cp", "sluice:/x", self.scratch / "no" / "out"), 3, "no")
        self.assertFalse((self.scratch / "out").exists())
        self.assertEqual(self.ok(self.sluice("ls")).out.split(), ["x"])

    def test_a_limit_of_file_sizes_is_told_and_leaves_no_copy(self):
        self.up()
        self.ok(self.sluice("cp", self.file("in", 3 << 20), "sluice:/x"))
        before = sorted(os.listdir(self.scratch))
        env = {"SLUICE_POOL": str(self.pool)}
        done = self.run_command("sh", "-c", f'ulimit -f 1024; exec "{SLUICE}" cp sluice:/x out', env=env)
        self.fails(done, 6, "out", "ulimit -f")
        self.assertEqual(sorted(os.listdir(self.scratch)), before)

    def test_a_signal_during_a_copy_leaves_nothing_behind(self):
        self.up()
        with open(self.scratch / "sparse", "wb") as out:
            out.truncate(64 << 30)  # quickly in, and a long way out
        self.ok(self.sluice("cp", self.scratch / "sparse", "sluice:/x"))
        before = sorted(os.listdir(self.scratch))
        for number in (signal.SIGINT, signal.SIGTERM):
            copy = self.start("cp", "sluice:/x", "out")
            self.wait_until(lambda: len(os.listdir(self.scratch)) > len(before), "the copy has begun")
            copy.send_signal(number)
            self.fails(self.finish(copy), 128 + number, "interrupted", "out")
            self.assertEqual(sorted(os.listdir(self.scratch)), before)

    def test_a_command_brings_its_own_service_when_none_runs(self):
        self.up()
        self.ok(self.sluice("down"))
        local = self.file("in")
        self.ok(self.sluice("cp", local, "sluice:/x"))
        self.assertEqual(self.servers(), [])
        self.ok(self.sluice("cp", "sluice:/x", self.scratch / "out"))
        self.assertEqual((self.scratch / "out").read_bytes(), local.read_bytes())
        self.assertEqual(self.servers(), [])
        self.up()
        self.ok(self.sluice("ls"))
        self.assertEqual(len(self.servers()), 1)


class Looking(PoolTest):
    def test_dump_prints_the_log_and_shards_of_a_stopped_pool(self):
        self.up("--drain", "idle")
        self.ok(self.sluice("cp", self.file("in"), "sluice:/x"))
        self.fails(self.sluice("dump", self.pool / "hot" / "hot.pool"), 1, "hot.pool")
        self.kill_server()
        self.assertIn("write", self.ok(self.sluice("dump", self.pool / "hot" / "hot.pool")).out)
        self.up()
        self.ok(self.sluice("down"))
        shards = [p for p in (self.pool / "targets" / "t0" / "shards").rglob("*") if p.is_file()]
        self.assertTrue(shards)
        self.assertIn("stripe", self.ok(self.sluice("dump", shards[0])).out)
        self.fails(self.sluice("dump", self.scratch / "nothing"), 3, "nothing")
        self.assertNotEqual(self.sluice("dump", self.file("noise")).code, 0)

    def test_the_lock_table_can_be_tried_out(self):
        script = self.scratch / "script"
        script.write_text("grant a PW 0 100 noexpand\ntry b PW 50 60\nshow\n")
        out = self.ok(self.sluice("locktable", script)).out
        self.assertIn("a granted L1 PW [0, 100)", out)
        self.assertIn("dropped", out)
        self.fails(self.sluice("locktable", self.scratch / "nothing"), 3, "nothing")


class ExitCodes(PoolTest):
    def test_wrong_usage_is_two(self):
        for words in (["nonsense"], ["up", "--nonsense"], ["cp", "sluice:/x"], ["stat"], ["run", "-n", "zero", "--", "true"],
                      ["run", "-n", "2"], ["cp", "/a", "/b"], ["up", "--targets", "-1"]):
            self.fails(self.sluice(*words), 2)
        self.assertEqual(self.sluice().code, 2)
        self.fails(self.run_command(SLUICE, "ls"), 2, "--pool", "SLUICE_POOL")
        self.assertFalse(self.pool.exists())

    def test_an_unknown_command_is_named_with_the_nearest_one(self):
        for word, nearest in (("nonsense", "'"), ("stauts", "'status'"), ("remove", "'"), ("rmm", "'rm'"), ("explian", "'explain'")):
            self.fails(self.sluice(word, "/x"), 2, f"'{word}'", "nearest is " + nearest, "sluice --help")
        self.fails(self.sluice("a\nb"), 2, "'a\\nb'")

    def test_help_is_zero_and_has_an_example_each(self):
        self.ok(self.sluice("--version"))
        text = self.ok(self.sluice("--help")).out
        self.assertIn("Exit codes", text)
        for command in ("up", "down", "run", "status", "ls", "stat", "cp", "rm", "explain", "persist", "doctor", "preload", "libs", "locktable", "dump"):
            self.assertIn(command, text)
            self.assertIn("Example: ", self.ok(self.sluice(command, "--help")).out)

    def test_paths_outside_of_the_pool_are_named(self):
        self.up()
        self.fails(self.sluice("stat", "x"), 2, "sluice:/x")
        self.fails(self.sluice("stat", "/../x"), 2, "..")
        self.fails(self.sluice("stat", "/x"), 3, "/x")

    def test_doctor_looks_at_the_pool(self):
        self.up()
        findings = json.loads(self.sluice("doctor", "--json").out)
        self.assertIn("ok", [f["result"] for f in findings if "service on" in f["what"]])
        os.rename(self.pool / "targets" / "t0", self.scratch / "t0")
        done = self.sluice("doctor", "--json")
        self.assertEqual(done.code, 1)
        self.assertIn("bad", [f["result"] for f in json.loads(done.out) if "service on" in f["what"]])


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=sys.argv)
