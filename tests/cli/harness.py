"""Runs the real `sluice` and `sluiced` in a scratch directory of its own; nothing of it outlives the test."""

import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BIN = pathlib.Path(os.environ["SLUICE_BIN"])
SLUICE = str(BIN / "sluice")
SLUICED = str(BIN / "sluiced")
TIMEOUT_S = 120

# Waits for the end of its standard input, which comes when the test ends, however it does; then ends every `sluice` and
# `sluiced` that was started with a path in the scratch directory, until there are none, and removes it.
GUARD = r"""
import os, shutil, signal, sys
sys.stdin.read()
def ours():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            name = os.path.basename(os.readlink(f"/proc/{pid}/exe")).split()[0]
            if name in ("sluice", "sluiced") and sys.argv[1] in open(f"/proc/{pid}/cmdline", errors="replace").read():
                yield int(pid)
        except OSError:
            pass
while pids := list(ours()):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
shutil.rmtree(sys.argv[1], ignore_errors=True)
"""


class Done:
    """What a command did."""

    def __init__(self, process):
        self.code = process.returncode
        self.out = process.stdout
        self.err = process.stderr

    def __repr__(self):
        return f"exit code {self.code}\nstdout: {self.out}\nstderr: {self.err}"


class PoolTest(unittest.TestCase):
    """Each test has a scratch directory, self.scratch, and the path of a pool in it, self.pool, that is not made yet."""

    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="sluice_cli_test."))
        self.guard = subprocess.Popen([sys.executable, "-c", GUARD, str(self.scratch)], stdin=subprocess.PIPE,
                                      start_new_session=True)
        self.pool = self.scratch / "pool"

    def tearDown(self):
        self.guard.stdin.close()
        self.guard.wait()

    def run_command(self, *words, env=None, **options):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_") and k != "LD_PRELOAD"}
        environment.update(env or {})
        return Done(subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
                                   env=environment, stdin=subprocess.DEVNULL, cwd=self.scratch, **options))

    def sluice(self, *words, pool=None, **options):
        """`sluice` with self.pool as SLUICE_POOL."""
        env = {"SLUICE_POOL": str(pool or self.pool)}
        env.update(options.pop("env", {}))
        return self.run_command(SLUICE, *words, env=env, **options)

    def start(self, *words, env=None, **options):
        """`sluice` with self.pool as SLUICE_POOL, not waited for; see finish()."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_") and k != "LD_PRELOAD"}
        environment["SLUICE_POOL"] = str(self.pool)
        environment.update(env or {})
        return subprocess.Popen([SLUICE, *(str(w) for w in words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env=environment, cwd=self.scratch, **options)

    def finish(self, process):
        out, err = process.communicate(timeout=TIMEOUT_S)
        return Done(subprocess.CompletedProcess(process.args, process.returncode, out, err))

    def ok(self, done):
        self.assertEqual(done.code, 0, done)
        return done

    def fails(self, done, code, *words):
        """One sentence on stderr that has these words, and this exit code."""
        self.assertEqual(done.code, code, done)
        lines = done.err.strip().splitlines()
        self.assertEqual(len(lines), 1, done)
        for word in words:
            self.assertIn(str(word), lines[0])
        return done

    def up(self, *words, **options):
        # A small hot tier: the tests run on small disks, and in parallel.
        return self.ok(self.sluice("up", "--hot-size", "32M", *words, **options))

    def status(self, pool=None):
        return json.loads(self.ok(self.sluice("status", "--json", pool=pool)).out)

    def server_pid(self, pool=None):
        return self.status(pool)["servers"][0]["pid"]

    def kill_server(self, pool=None):
        pid = self.server_pid(pool)
        os.kill(pid, signal.SIGKILL)
        self.wait_until(lambda: not alive(pid), f"process {pid} ends")

    def wait_until(self, condition, what, timeout_s=60):
        end = time.monotonic() + timeout_s
        while not condition():
            self.assertLess(time.monotonic(), end, f"in vain: {what}")
            time.sleep(0.02)

    def file(self, name, size=1 << 20, seed=1):
        """A local file of bytes that look random and are always the same."""
        import random
        path = self.scratch / name
        path.write_bytes(random.Random(seed).randbytes(size))
        return path

    def servers(self):
        """The servers that hold pools in the scratch directory."""
        pids = []
        for lock in glob.glob(str(self.scratch) + "/**/lock", recursive=True):
            try:
                pid = int(pathlib.Path(lock).read_text(encoding="ascii"))
                if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "sluiced":
                    pids.append(pid)
            except (OSError, ValueError):
                continue
        return pids


def stopped(pid):
    """A stop reaches the threads of a process one after another."""
    states = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/stat", encoding="ascii", errors="replace") as stat:
            states.append(stat.read().rsplit(")", 1)[1].split()[0])
    return all(state == "T" for state in states)


def alive(pid):
    """A zombie is not alive: its parent may be a process that never looks. But as long as one of its threads is left, it
    holds its files and locks."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def remove(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()
