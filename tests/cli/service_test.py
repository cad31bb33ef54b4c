"""up, status, down and what can go wrong with a service."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

from harness import SLUICE, SLUICED, PoolTest, alive, cpu_seconds, stopped


class UpAndDown(PoolTest):
    def test_a_service_whose_pool_is_removed_ends(self):
        self.up()
        pid = self.server_pid()
        shutil.rmtree(self.pool, ignore_errors=True)  # the service may be making its files anew
        deadline = time.monotonic() + 30
        while alive(pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertFalse(alive(pid))

    def test_a_directory_that_is_no_pool_is_said_to_be_none(self):
        self.pool.mkdir(parents=True, exist_ok=True)
        for command in ("down", "status"):
            self.fails(self.sluice(command), 3, "there is no pool", self.pool)

    def test_a_service_comes_answers_and_goes(self):
        self.up("--targets", "6", "--class", "EC_4P2")
        status = self.status()
        self.assertEqual(status["pool"], str(self.pool))
        self.assertEqual(status["class"], "EC_4P2")
        self.assertEqual(status["state"], "ok")
        self.assertEqual(len(status["servers"]), 1)
        self.assertTrue(status["servers"][0]["address"].startswith("tcp://127.0.0.1:"))
        self.assertEqual(status["servers"][0]["state"], "up")
        self.assertTrue(alive(status["servers"][0]["pid"]))
        self.assertEqual([t["state"] for t in status["targets"]], ["up"] * 6)
        for target in status["targets"]:
            self.assertTrue(os.path.isdir(target["path"]))
            self.assertGreater(target["bytes_free"], 0)
        for key in ("medium", "survives", "bytes_total", "bytes_used", "bytes_clean", "bytes_undrained"):
            self.assertIn(key, status["hot"])
        self.assertGreaterEqual(status["hot"]["bytes_total"], 16 << 20)
        self.assertEqual(status["files"], 0)
        self.assertEqual(status["drain"]["bytes_left"], 0)
        self.assertTrue((self.pool / "service.json").exists())

        text = self.ok(self.sluice("status")).out
        self.assertIn("EC_4P2", text)
        metrics = self.ok(self.sluice("status", "--metrics")).out
        self.assertIn("\nsluice_files 0\n", metrics)

        pid = status["servers"][0]["pid"]
        self.ok(self.sluice("down"))
        self.assertFalse(alive(pid))
        self.assertFalse((self.pool / "service.json").exists())
        self.ok(self.sluice("down"))  # and again
        self.fails(self.sluice("status"), 5, self.pool, "sluice up")

    def test_a_service_whose_files_were_removed_or_damaged_is_found_and_puts_them_right(self):
        self.up()
        pid = self.server_pid()
        record, control = self.pool / "service.json", self.pool / "control.sock"
        good = record.read_text()
        for damage in (record.unlink, lambda: record.write_text("{{{"), lambda: record.write_text(good.replace(str(pid), "1"))):
            damage()
            self.ok(self.sluice("up"))
            self.assertEqual(record.read_text(), good)
            damage()  # and without being told
            self.wait_until(lambda: record.exists() and record.read_text() == good, "the service writes its file again")
        record.unlink()
        self.ok(self.sluice("ls"))
        control.unlink()
        self.assertEqual(self.server_pid(), pid)
        control.unlink()
        record.unlink()
        self.ok(self.sluice("ls"))
        control.unlink()
        self.ok(self.sluice("down"))
        self.assertFalse(alive(pid))

    def test_a_service_that_cannot_be_heard_is_never_called_none(self):
        self.up()
        pid = self.server_pid()
        (self.pool / "control.sock").unlink()
        os.kill(pid, signal.SIGSTOP)
        self.wait_until(lambda: stopped(pid), "every thread of the server has stopped")
        try:
            for command in [self.start("status"), self.start("down")]:
                self.fails(self.finish(command), 5, f"process {pid}", self.pool)
        finally:
            os.kill(pid, signal.SIGCONT)
        self.ok(self.sluice("down"))
        self.assertFalse(alive(pid))

    def test_down_waits_for_the_end_that_another_down_began(self):
        self.up()
        pid = self.server_pid()
        downs = [self.start("down") for _ in range(6)]
        while downs:
            for down in [d for d in downs if d.poll() is not None]:
                self.assertFalse(alive(pid))
                self.ok(self.finish(down))
                downs.remove(down)

    def test_down_does_not_call_a_service_drained_that_died_before_it_was(self):
        self.up("--drain", "watermark")
        targets = self.pool / "targets"
        self.ok(self.sluice("cp", self.file("in"), "sluice:/x"))
        targets.rename(self.pool / "away")
        down = self.start("down")
        self.wait_until(lambda: self.status()["drain"]["state"].startswith("blocked"), "the drain has begun")
        self.kill_server()
        self.fails(self.finish(down), 5, "ended before all was drained", "sluice up")
        (self.pool / "away").rename(targets)
        self.up()
        self.ok(self.sluice("down"))

    def test_up_says_whether_it_made_the_pool(self):
        for outcome in ("made", "running"):
            self.assertEqual(json.loads(self.ok(self.sluice("up", "--hot-size", "32M", "--json")).out)["outcome"], outcome)
        self.ok(self.sluice("down"))
        self.assertEqual(json.loads(self.ok(self.sluice("up", "--json")).out)["outcome"], "started")

    def test_the_defaults_are_three_targets_and_a_class_that_fits(self):
        self.up()
        status = self.status()
        self.assertEqual(status["class"], "EC_2P1")
        self.assertEqual(len(status["targets"]), 3)

    def test_up_says_that_pool_toml_was_changed_under_the_service(self):
        self.up()
        time.sleep(1.1)  # the service tells its age in whole seconds
        self.assertEqual(self.ok(self.sluice("up")).err, "")
        config = self.pool / "pool.toml"
        config.write_text(config.read_text().replace("'immediate'", "'idle'"))
        said = self.ok(self.sluice("up")).err
        for word in (f"{config} was changed", "takes effect at its next start", "sluice down"):
            self.assertIn(word, said)
        self.ok(self.sluice("down"))
        self.assertEqual(self.ok(self.sluice("up")).err, "")

    def test_doctor_tells_a_service_that_died_from_one_that_was_stopped(self):
        self.up()
        self.kill_server()
        told = self.sluice("doctor").out
        self.assertIn(f"the last service on the pool {self.pool} ended without saying so", told)
        self.up()
        self.ok(self.sluice("down"))
        self.assertIn(f"no service runs on the pool {self.pool}", self.sluice("doctor").out)

    @unittest.skipUnless(os.geteuid() == 0, "needs to be another user")
    def test_another_users_pool_is_refused_with_what_to_do(self):
        self.up()
        self.ok(self.sluice("down"))
        self.scratch.chmod(0o755)
        self.fails(self.sluice("up", user=65534), 7, "Permission denied", "another user's", "--pool")

    def test_up_twice_is_one_service_and_contradictions_are_refused(self):
        self.up()
        pid = self.server_pid()
        self.ok(self.sluice("up"))
        address = self.status()["servers"][0]["address"].removeprefix("tcp://")
        self.ok(self.sluice("up", "--targets", "3", "--class", "EC_2P1", "--hot-size", "32M", "--hot-dir", self.pool / "hot",
                            "--listen", address, "--drain", "immediate"))
        self.ok(self.sluice("up", "--listen", "127.0.0.1:0"))
        for option, asked, runs in (("--targets", "5", "3"), ("--class", "RP_2", "EC_2P1"), ("--hot-size", "64M", 32 << 20),
                                    ("--hot-dir", self.scratch, self.pool / "hot"), ("--drain", "idle", "immediate"),
                                    ("--listen", "127.0.0.1:1", "127.0.0.1:0")):
            said = 64 << 20 if option == "--hot-size" else asked
            self.fails(self.sluice("up", option, asked), 4, f"{option} {said}", option, runs, self.pool, "leave the option out")
        self.assertEqual(self.server_pid(), pid)
        self.ok(self.sluice("down"))
        self.fails(self.sluice("up", "--targets", "5"), 4, "--targets 3")
        self.fails(self.sluice("up", "--class", "RP_2"), 4, "--class EC_2P1")
        self.fails(self.sluice("up", "--hot-size", "64M"), 4, "--hot-size")
        self.assertEqual(self.servers(), [])

    def test_eight_at_once_make_one_service(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
        ups = [subprocess.Popen([SLUICE, "up", "--pool", str(self.pool), "--hot-size", "32M"], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env=env) for _ in range(8)]
        for up in ups:
            out, err = up.communicate(timeout=100)
            self.assertEqual(up.returncode, 0, out + err)
        self.assertEqual(self.servers(), [self.server_pid()])

    def test_a_killed_service_comes_back_with_its_files(self):
        self.up()
        local = self.file("in", 3 << 20)
        self.ok(self.sluice("cp", local, "sluice:/a/b"))
        for _ in range(2):
            self.kill_server()
            self.assertTrue((self.pool / "service.json").exists())
            self.fails(self.sluice("status"), 5, "sluice up")
            self.ok(self.sluice("up"))
            self.ok(self.sluice("cp", "--force", "sluice:/a/b", self.scratch / "out"))
            self.assertEqual((self.scratch / "out").read_bytes(), local.read_bytes())

    def test_sigterm_and_sigint_are_an_orderly_end(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self.up()
            pid = self.server_pid()
            os.kill(pid, number)
            self.wait_until(lambda: not alive(pid), "the server ends")
            self.assertFalse((self.pool / "service.json").exists())
            self.assertFalse((self.pool / "control.sock").exists())
            self.assertIn("stopped", (self.pool / "sluiced.log").read_text())

    def test_no_pool_is_made_by_commands_that_read(self):
        for words in (["status"], ["ls"], ["stat", "/x"], ["down"], ["rm", "/x"], ["cp", "sluice:/x", "out"]):
            self.fails(self.sluice(*words), 3, self.pool, "sluice up")
            self.assertFalse(self.pool.exists(), words)

    def test_a_long_path_works(self):
        deep = self.scratch
        for _ in range(5):
            deep = deep / ("d" * 90)
        deep.mkdir(parents=True)
        pool = deep / "pool"
        self.up(pool=pool)
        self.assertEqual(self.status(pool)["pool"], str(pool))
        self.ok(self.sluice("cp", self.file("in"), "sluice:/x", pool=pool))
        self.ok(self.sluice("down", pool=pool))

    def test_a_server_may_open_as_many_files_as_the_hard_limit_says(self):
        script = f'ulimit -S -n 128; ulimit -H -n 900; exec "{SLUICE}" up --hot-size 32M'
        self.ok(self.run_command("sh", "-c", script, env={"SLUICE_POOL": str(self.pool)}))
        limits = pathlib.Path(f"/proc/{self.server_pid()}/limits").read_text(encoding="ascii")
        line = next(line for line in limits.splitlines() if line.startswith("Max open files"))
        self.assertEqual(line.split()[3:5], ["900", "900"])

    def test_the_hot_tier_may_lie_elsewhere(self):
        hot = self.scratch / "hot place"
        hot.mkdir()
        self.up("--hot-dir", hot)
        self.assertEqual(len(list(hot.iterdir())), 1)
        self.ok(self.sluice("down"))
        self.up("--hot-dir", hot)
        self.assertEqual(len(list(hot.iterdir())), 1)

    def test_an_idle_service_hardly_uses_the_processor(self):
        self.up()
        pid = self.server_pid()
        before = cpu_seconds(pid)
        time.sleep(6)  # the time over which it is measured
        used = cpu_seconds(pid) - before
        self.assertLessEqual(used, 0.1, "more than one core-second a minute")


class WhatGoesWrong(PoolTest):
    def test_a_second_server_is_refused_and_told_of_the_first(self):
        self.up()
        pid = self.server_pid()
        self.fails(self.run_command(SLUICED, "--pool", self.pool, "--foreground"), 1, pid, self.pool)
        self.assertEqual(self.server_pid(), pid)

    def test_a_class_that_does_not_fit_leaves_nothing(self):
        self.fails(self.sluice("up", "--targets", "3", "--class", "EC_4P2"), 2, "EC_4P2", "6", "nearest")
        self.fails(self.sluice("up", "--class", "EC_5P5"), 2, "EC_5P5")
        self.assertFalse(self.pool.exists())

    def test_values_that_make_no_sense_are_named(self):
        self.fails(self.sluice("up", "--servers", "2"), 2, "--servers 2", "one server")
        self.fails(self.sluice("up", "--targets", "0"), 2, "targets", "0")
        self.fails(self.sluice("up", "--hot-size", "lots"), 2, "--hot-size", "'lots'")
        self.fails(self.sluice("up", "--hot-size", "1M"), 2, "16M", "1048576")
        self.fails(self.sluice("up", "--listen", "nonsense"), 2, "'nonsense'")
        self.fails(self.sluice("up", "--drain", "sometimes"), 2, "'sometimes'", "watermark")
        self.fails(self.sluice("up", "--hot-dir", self.scratch / "nowhere"), 3, "nowhere")
        self.assertFalse(self.pool.exists())

    def test_a_log_level_that_is_none_is_told_once_with_those_that_are(self):
        self.up(env={"SLUICE_LOG": "verbose"})
        self.assertEqual((self.pool / "sluiced.log").read_text().count("SLUICE_LOG"), 1)
        done = self.ok(self.sluice("ls", env={"SLUICE_LOG": "verbose"}))
        self.assertEqual(len(done.err.splitlines()), 1, done)
        for word in ("SLUICE_LOG=verbose", "trace, debug, info, warn, error, off"):
            self.assertIn(word, done.err)
        for good in ("trace", "debug", "info", "warn", "error", "off", ""):
            self.assertNotIn("SLUICE_LOG", self.ok(self.sluice("ls", env={"SLUICE_LOG": good})).err)

    def test_a_directory_with_other_things_is_no_pool(self):
        self.pool.mkdir()
        (self.pool / "thesis.tex").write_text("x")
        self.fails(self.sluice("up"), 2, "thesis.tex")
        self.assertEqual([p.name for p in self.pool.iterdir()], ["thesis.tex"])

    def test_a_file_is_no_pool(self):
        self.pool.write_text("x")
        done = self.sluice("up")
        self.assertNotEqual(done.code, 0)
        self.assertIn(str(self.pool), done.err)
        self.assertEqual(self.pool.read_text(), "x")

    def test_a_port_in_use_is_named(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.fails(self.sluice("up", "--hot-size", "32M", "--listen", f"127.0.0.1:{port}"), 4, port)
        self.assertEqual(self.servers(), [])
        self.ok(self.sluice("up", "--listen", f"127.0.0.1:{port}"))
        self.assertIn(f":{port}", self.status()["servers"][0]["address"])

    def test_a_full_disk_is_told_and_leaves_no_server(self):
        # A file system of 20 MiB in a mount namespace that ends with the command.
        small = self.scratch / "small"
        small.mkdir()
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        script = f'mount -t tmpfs -o size=20m none "{small}" && "{SLUICE}" up --pool "{small}/pool"'
        done = self.run_command("unshare", *user, "--mount", "sh", "-c", script)
        self.fails(done, 6, small)

    def test_a_pool_file_that_was_damaged_is_named(self):
        self.up()
        self.ok(self.sluice("down"))
        config = self.pool / "pool.toml"
        good = config.read_text()
        config.write_text(good.replace("EC_2P1", "EC_9P9"))
        self.fails(self.sluice("up"), 2, config, "'class'")
        config.write_text("{{{")
        self.fails(self.sluice("up"), 2, config, "line 1")
        config.write_text(good + "[hints]\n\"*.h5\" = { cb_nodes = '4m' }\n")
        self.fails(self.sluice("up"), 2, config, "cb_nodes' cannot be a pool's")
        config.write_text(good)
        self.up()

    def test_a_missing_target_is_reported_and_not_made_anew(self):
        self.up()
        local = self.file("in", 2 << 20)
        self.ok(self.sluice("cp", local, "sluice:/x"))
        self.ok(self.sluice("down"))
        target = self.pool / "targets" / "t1"
        target.rename(self.scratch / "t1 elsewhere")
        up = self.ok(self.sluice("up"))
        self.assertIn("degraded", up.err)
        status = self.status()
        self.assertTrue(status["state"].startswith("degraded"))
        self.assertEqual([t["state"] for t in status["targets"]], ["up", "missing", "up"])
        self.assertFalse(target.exists())
        self.ok(self.sluice("cp", "sluice:/x", self.scratch / "out"))
        self.assertEqual((self.scratch / "out").read_bytes(), local.read_bytes())

    def edit_targets(self, edit):
        """Stops the service and writes the list of targets anew, as `edit` makes it of the one that is there."""
        self.ok(self.sluice("down"))
        config = self.pool / "pool.toml"
        text = config.read_text()
        start = text.index("targets = [")
        end = text.index("]", start) + 1
        paths = [path.strip(" '\"\n") for path in text[start:end].split("[")[1].strip("]").split(",")]
        config.write_text(text[:start] + "targets = " + json.dumps(edit(paths)) + text[end:])

    def test_a_target_that_pool_toml_names_no_more_is_missed(self):
        self.up("--targets", "5", "--class", "EC_2P1")
        for gone in (4, 1):
            self.edit_targets(lambda paths: [path for path in paths if not path.endswith(f"t{gone}")])
            self.fails(self.sluice("up"), 2, "made with 5 targets, and 4 are named in pool.toml")
            self.assertEqual(self.servers(), [])
            text = (self.pool / "pool.toml").read_text()
            (self.pool / "pool.toml").write_text(re.sub(r"targets = \[.*?\]", "targets = " + json.dumps(
                [f"targets/t{i}" for i in range(5)]), text, flags=re.S))
            self.up()
            self.assertEqual(self.status()["state"], "ok")

    def test_directories_that_are_there_and_are_not_the_targets_are_called_what_they_are(self):
        self.up("--targets", "4", "--class", "EC_2P1")
        empty = self.scratch / "empty"
        empty.mkdir()
        self.edit_targets(lambda paths: [str(empty), paths[2], paths[1], paths[3]])
        reasons = [f"target 0 cannot be used: {empty} is there, but holds no target",
                   f"target 1 cannot be used: {self.pool}/targets/t2 is target 2 of this pool",
                   f"target 2 cannot be used: {self.pool}/targets/t1 is target 1 of this pool"]
        up = self.ok(self.sluice("up"))
        status = self.status()
        self.assertEqual([t["state"] for t in status["targets"]], ["wrong", "wrong", "wrong", "up"])
        for told in (up.err, status["state"], self.sluice("status").out, self.sluice("doctor").out):
            for reason in reasons:
                self.assertIn(reason, told)
            self.assertNotIn("is missing", told)

    def test_a_moved_target_is_found_by_its_new_path(self):
        self.up()
        self.ok(self.sluice("down"))
        (self.pool / "targets" / "t1").rename(self.scratch / "moved")
        config = self.pool / "pool.toml"
        config.write_text(config.read_text().replace("targets/t1", str(self.scratch / "moved")))
        self.up()
        self.assertEqual(self.status()["state"], "ok")

    def test_a_lost_hot_tier_is_no_silent_loss(self):
        hot = self.scratch / "hot"
        hot.mkdir()
        self.up("--hot-dir", hot)
        self.kill_server()
        for file in hot.iterdir():
            file.unlink()
        self.fails(self.sluice("up"), 8, hot, "--accept-lost-hot-tier")
        self.ok(self.sluice("up", "--accept-lost-hot-tier"))
        # After an orderly end with all drained it is no loss.
        self.ok(self.sluice("down"))
        for file in hot.iterdir():
            file.unlink()
        self.up()

    def test_a_stopped_server_that_holds_the_pool_does_not_hang_the_commands(self):
        self.up()
        pid = self.server_pid()
        os.kill(pid, signal.SIGSTOP)
        self.wait_until(lambda: stopped(pid), "every thread of the server has stopped")
        try:
            self.fails(self.sluice("status"), 5, self.pool)
        finally:
            os.kill(pid, signal.SIGCONT)
        self.ok(self.sluice("status"))


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=sys.argv)
