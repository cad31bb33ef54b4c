#!/usr/bin/env python3
"""The messages that opening and closing files costs do not grow with the number of ranks.

    open_cost.py BUILD_DIR PROGRAM YIELD_LIBRARY
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

FILES = 20
BY_THE_WAY = 20  # leases renewed, room given back: by time, not by rank
build, program, yield_library = sys.argv[1:]
sluice = f"{build}/bin/sluice"
mpiexec = shutil.which("mpiexec.mpich") or shutil.which("mpiexec")


def counters(pool):
    status = subprocess.run([sluice, "status", "--json", "--pool", pool], check=True, capture_output=True, timeout=60)
    return json.loads(status.stdout)["counters"]


def cost(pool, ranks, writers):
    """What the service counted while the program ran."""
    before = counters(pool)
    preload = f"{build}/lib/libsluice_romio.so:{yield_library}"
    subprocess.run([mpiexec, "-n", str(ranks), "-genv", "LD_PRELOAD", preload, program,
                    f"sluice:/{ranks}-{writers}", str(FILES), str(writers)],
                   check=True, timeout=120, env=dict(os.environ, SLUICE_POOL=pool))
    after = counters(pool)
    return {name: after[name] - before[name] for name in ("opens", "attaches", "closes", "writes", "requests")}


def check(pool):
    failures = []
    for writers in (0, 1):
        few, many = cost(pool, 2, writers), cost(pool, 7, writers)
        wanted = {"opens": FILES, "attaches": writers * FILES, "closes": FILES, "writes": writers * FILES}
        for ranks, seen in ((2, few), (7, many)):
            print(f"{writers} writers, {ranks} ranks: {seen}")
            failures += [f"{writers} writers, {ranks} ranks: {seen[name]} {name}, not {number}"
                         for name, number in wanted.items() if seen[name] != number]
        if abs(many["requests"] - few["requests"]) > BY_THE_WAY:
            failures.append(f"{writers} writers: {few['requests']} messages of 2 ranks, {many['requests']} of 7")
    return failures


with tempfile.TemporaryDirectory(prefix="sluice-open-cost.") as scratch:
    pool = f"{scratch}/pool"
    subprocess.run([sluice, "up", "--pool", pool, "--targets", "3", "--hot-size", "64m"], check=True, timeout=60)
    try:
        failures = check(pool)
    finally:
        subprocess.run([sluice, "down", "--pool", pool, "--no-drain"], check=False, timeout=60)
for failure in failures:
    print(failure, file=sys.stderr)
sys.exit(1 if failures else 0)
