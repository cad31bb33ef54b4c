#!/usr/bin/env python3
"""Compares sluice: with the stock MPI-IO library, pair by pair in one run, and says how sure the answer is.

Each round runs the one and the other directly after each other, so that a slow minute of the machine meets both. The
figure is the median of the rounds' ratios, with the interval that holds the true median with at least 95 % (order
statistics; fewer than 6 rounds have none). No winner is named when the interval spans 1.
"""

import argparse
import ctypes
import html
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

BENCH = Path(__file__).resolve().parent
BIN = BENCH.parent / "bin"
LIB = BENCH.parent / "lib"
MPIEXEC = shutil.which("mpiexec.mpich") or shutil.which("mpiexec")
STOCK_SETTINGS = {
    "automatic": {},
    "enable": {"romio_cb_write": "enable", "romio_cb_read": "enable"},
    "disable": {"romio_cb_write": "disable", "romio_cb_read": "disable"},
}
PATIENCE_S = 300


class Trouble(Exception):
    """One sentence for the user."""


class Case:
    """One comparison. `ours` and `theirs` are (program, arguments, prefix of the path); theirs is run in each of the
    settings and counts in the best of them. `floors`: the least ratio by access."""

    def __init__(self, name, ranks, ours, theirs, settings, floors):
        self.name, self.ranks, self.ours, self.theirs = name, ranks, ours, theirs
        self.settings, self.floors = settings, floors


def shared_file(transfer, block, *more):
    return ["shared_file", "-w", "-r", "-t", transfer, "-b", block, *more]


def mpiio_cases(quick):
    block = {"64k": "16m", "1m": "64m", "8m": "64m"} if quick else {"64k": "64m", "1m": "256m", "8m": "256m"}
    records = ["-t", "47008", "-b", "47008", "-s", "300" if quick else "2000"]
    tiles = ["tile_io", "--nr_tiles_x", "2", "--nr_tiles_y", "2", "--sz_tile_x", "1024", "--sz_tile_y", "1024",
             "--sz_element", "32"]
    cases = []
    for ranks in (2, 4):
        for size in ("64k", "1m", "8m"):
            command = shared_file(size, block[size], "-c")
            alone = shared_file(size, block[size], "-F")
            cases.append(Case(f"collective {size}", ranks, (command, "sluice:/"), (command, "ufs:"), STOCK_SETTINGS,
                              {"write": 2.0, "read": 1.0}))
            cases.append(Case(f"shared {size} / own file per process", ranks, (command, "sluice:/"),
                              (alone, "sluice:/"), {"as it is": {}}, {"write": 0.95}))
            cases.append(Case(f"shared {size} / stock file per process", ranks, (command, "sluice:/"),
                              (alone, "ufs:"), {"as it is": {}}, {"write": 1.2}))
        command = ["shared_file", "-w", "-r", *records, "-c"]
        cases.append(Case("47,008-byte records", ranks, (command, "sluice:/"), (command, "ufs:"), STOCK_SETTINGS,
                          {"write": 2.0, "read": 1.5}))
    cases.append(Case("tiles 2x2", 4, (tiles + ["--collective"], "sluice:/"), (tiles + ["--collective"], "ufs:"),
                      STOCK_SETTINGS, {"write": 2.0, "read": 1.5}))
    cases.append(Case("independent strided", 4, (tiles, "sluice:/"), (tiles, "ufs:"),
                      {"data sieving": {"romio_ds_write": "enable"}}, {"write": 3.0}))
    return cases


def lock_cases(quick):
    """Lockahead over real processes that write one file strided by transfer: the other modes, and private files."""
    cases = []
    for ranks in (2, 4):
        for size, transfers in {"64k": 2048, "256k": 512, "1m": 128, "8m": 16}.items():
            transfers = max(4, transfers // 4) if quick else transfers
            strided = ["shared_file", "-w", "-t", size, "-b", size, "-s", str(transfers)]
            ahead = (strided + ["--hint", "sluice_lock_mode=lockahead"], "sluice:/")
            standard = (strided + ["--hint", "sluice_lock_mode=standard"], "sluice:/")
            alone = (["shared_file", "-w", "-F", "-t", size, "-b", f"{int(size[:-1]) * transfers}{size[-1]}"], "sluice:/")
            cases.append(Case(f"lockahead {size} / standard", ranks, ahead, standard, {"as it is": {}}, {"write": 1.0}))
            cases.append(Case(f"lockahead {size} / file per process", ranks, ahead, alone, {"as it is": {}},
                              {"write": 0.95}))
    return cases


class Rig:
    """A pool and a directory for plain files on the same memory file system, for as long as it is open."""

    def __init__(self, directory):
        self.directory = Path(tempfile.mkdtemp(prefix="sluice-compare.", dir=directory))
        self.plain = self.directory / "plain"
        self.plain.mkdir()
        self.pool = self.directory / "pool"

    def __enter__(self):
        try:
            self.sluice("up", "--pool", self.pool, "--targets", "3", "--hot-size", "3g")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if (BIN / "sluice").exists():
            subprocess.run([BIN / "sluice", "down", "--pool", self.pool, "--no-drain"], check=False, capture_output=True)
        shutil.rmtree(self.directory, ignore_errors=True)

    @staticmethod
    def sluice(*arguments):
        if not (BIN / "sluice").exists():
            raise Trouble(f"{BIN / 'sluice'} is not there; compare belongs into the build's bench directory")
        done = subprocess.run([BIN / "sluice", *arguments], capture_output=True, text=True, timeout=PATIENCE_S)
        if done.returncode != 0:
            raise Trouble(f"sluice {arguments[0]} failed: {done.stderr.strip().splitlines()[-1:]}")

    def rates(self, ranks, command, prefix, hints):
        """MiB/s by access, of one run."""
        program, *arguments = command
        path = f"ufs:{self.plain}/file" if prefix == "ufs:" else f"{prefix}file"
        name = "--filename" if program == "tile_io" else "-o"
        rates = {}
        for more in (["--write_file"], []) if program == "tile_io" else ([],):
            out = self.directory / "result.json"
            line = [MPIEXEC, "-n", str(ranks), "-genv", "LD_PRELOAD",
                    f"{LIB / 'libsluice_romio.so'}:{BENCH / 'libsluice_yield.so'}", "-genv", "SLUICE_POOL", self.pool,
                    BENCH / program, *arguments, *more, name, path, "--json", out]
            for key, value in hints.items():
                line += ["--hint", f"{key}={value}"]
            try:
                done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                raise Trouble(f"{program} over {path} did not end in {PATIENCE_S} s") from None
            if done.returncode != 0:
                raise Trouble(f"{program} over {path} failed: {(done.stderr or done.stdout).strip()[-300:]}")
            for result in json.loads(out.read_text())["results"]:
                rates[result["access"]] = result["mib_per_s"]
        self.remove(prefix)
        return rates

    def remove(self, prefix):
        for file in self.plain.iterdir():
            file.unlink()
        if prefix != "ufs:":
            listed = subprocess.run([BIN / "sluice", "ls", "--pool", self.pool, "--json", "/"], capture_output=True,
                                    text=True, timeout=PATIENCE_S)
            names = [file["path"] for file in json.loads(listed.stdout or "[]")] if listed.returncode == 0 else []
            if names:
                self.sluice("rm", "--pool", self.pool, *names)


def memcpy_rate(megabytes=256, rounds=5):
    """MiB/s of two threads that each copy so much: the limit."""
    length = megabytes << 20
    buffers = [(ctypes.create_string_buffer(length), ctypes.create_string_buffer(length)) for _ in range(2)]

    def copy(pair):
        ctypes.memmove(pair[0], pair[1], length)

    rates = []
    for _ in range(rounds):
        threads = [threading.Thread(target=copy, args=(pair,)) for pair in buffers]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rates.append(2 * megabytes / (time.perf_counter() - begin))
    return statistics.median(rates)


def median_interval(values, confidence=0.95):
    """The narrowest pair of order statistics around the median that holds the true one with this confidence; nothing
    when all of the values are too few."""
    ordered, n = sorted(values), len(values)
    best = None
    for k in range(n // 2):
        outside = sum(math.comb(n, i) for i in range(k + 1)) / 2**n
        if 1 - 2 * outside < confidence:
            break
        best = (ordered[k], ordered[n - 1 - k])
    return best


def compare(rig, case, rounds):
    """One result for each access: rates of both sides, ratios, and the best of their settings."""
    ours, theirs = [], {setting: [] for setting in case.settings}
    for turn in range(rounds + 1):
        mine = rig.rates(case.ranks, *case.ours, {})
        others = {setting: rig.rates(case.ranks, *case.theirs, hints) for setting, hints in case.settings.items()}
        if turn == 0:
            continue  # warm-up
        ours.append(mine)
        for setting, rates in others.items():
            theirs[setting].append(rates)
    results = []
    for access, floor in case.floors.items():
        best = max(theirs, key=lambda s: statistics.median(rates[access] for rates in theirs[s]))
        a = [rates[access] for rates in ours]
        b = [rates[access] for rates in theirs[best]]
        ratios = [x / y for x, y in zip(a, b)]
        results.append({"case": case.name, "ranks": case.ranks, "access": access, "ours_mib_per_s": a,
                        "theirs_mib_per_s": b, "their_setting": best, "ratios": ratios,
                        "ratio": statistics.median(ratios), "interval": median_interval(ratios), "floor": floor})
    return results


def verdict(result):
    interval = result["interval"]
    if interval is None:
        return "too few rounds to tell"
    if interval[0] <= 1 <= interval[1]:
        return "no winner"
    return "faster" if interval[0] > 1 else "slower"


def machine():
    info = {"host_cpus": os.cpu_count(), "machine": platform.machine(), "kernel": platform.release(),
            "lock_mode": os.environ.get("SLUICE_LOCK_MODE", "auto"), "lane": os.environ.get("SLUICE_LANE", "auto")}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            info["cpu"] = line.split(":", 1)[1].strip()
            break
    for name, command in {"sluice": [BIN / "sluice", "--version"], "mpich": ["mpichversion"]}.items():
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30)
            info[name] = done.stdout.strip().splitlines()[0] if done.stdout.strip() else "unknown"
        except OSError:
            info[name] = "unknown"
    return info


def line_of(result, limit):
    a, b = result["ours_mib_per_s"], result["theirs_mib_per_s"]
    interval = result["interval"]
    span = f"[{interval[0]:.2f}, {interval[1]:.2f}]" if interval else "[-, -]"
    held = "holds" if result["ratio"] >= result["floor"] else "MISSED"
    return (f"{result['case']:<36} n={result['ranks']} {result['access']:<6}"
            f"{min(a):8.0f} {statistics.median(a):8.0f} {max(a):8.0f} |"
            f"{min(b):8.0f} {statistics.median(b):8.0f} {max(b):8.0f} {result['their_setting']:<13}"
            f"{result['ratio']:6.2f} {span:<16} floor {result['floor']:.2f} {held:<7}"
            f"{statistics.median(a) / limit:6.1%} of memcpy  {verdict(result)}")


def page(results, facts, limit):
    """One self-contained page: a dot for each ratio, a bar for the interval, a mark for the floor."""
    width, left, step = 900, 330, 26
    top = max([max(r["ratios"] + [r["floor"], 1]) for r in results], default=1) * 1.1

    def x(value):
        return left + (width - left - 20) * value / top

    rows = []
    for i, result in enumerate(results):
        y = 30 + i * step
        colour = "#1a7f37" if result["ratio"] >= result["floor"] else "#b3261e"
        label = html.escape(f"{result['case']}, {result['ranks']} ranks, {result['access']}")
        rows.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{label}</text>')
        if result["interval"]:
            low, high = result["interval"]
            rows.append(f'<line x1="{x(low):.1f}" y1="{y}" x2="{x(high):.1f}" y2="{y}" stroke="{colour}" '
                        'stroke-width="6" stroke-opacity="0.3"/>')
        rows += [f'<circle cx="{x(r):.1f}" cy="{y}" r="2.5" fill="{colour}"/>' for r in result["ratios"]]
        rows.append(f'<line x1="{x(result["floor"]):.1f}" y1="{y - 8}" x2="{x(result["floor"]):.1f}" y2="{y + 8}" '
                    'stroke="#444" stroke-width="2"/>')
    height = 50 + len(results) * step
    rows.append(f'<line x1="{x(1):.1f}" y1="10" x2="{x(1):.1f}" y2="{height - 20}" stroke="#999" '
                'stroke-dasharray="4 3"/>')
    table = "".join(f"<tr><td>{html.escape(str(k))}</td><td>{html.escape(str(v))}</td></tr>" for k, v in facts.items())
    text = html.escape("\n".join(line_of(result, limit) for result in results))
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><title>sluice compared with stock MPI-IO</title>'
            '<style>body{font:14px sans-serif;margin:2em;max-width:1100px}svg text{font:12px sans-serif}'
            'pre{font-size:11px;overflow:auto}td{padding:0 1em 0 0}</style>'
            '<h1>Sluice / the other side, ratio of each round</h1>'
            '<p>Dots: rounds. Bar: 95 % interval of the median. Upright mark: the floor. Dashed: equal. '
            'Right is better for sluice.</p>'
            f'<svg width="{width}" height="{height}" role="img" aria-label="ratios">{"".join(rows)}</svg>'
            f'<pre>{text}</pre><table>{table}</table></html>\n')


def arguments():
    parser = argparse.ArgumentParser(
        prog="compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit code: 0 done, with --check: every floor held; 1 a floor was missed; 2 it could not be measured.\n"
               "Example: compare --suite mpiio --check --json results.jsonl --html results.html")
    parser.add_argument("--suite", default="mpiio", choices=["mpiio", "locks"], help="mpiio (default): with the stock library; locks: the lock modes, simulated and real")
    parser.add_argument("--quick", action="store_true", help="less data and 3 rounds: to see that it works")
    parser.add_argument("--rounds", type=int, default=7, help="pairs of each case, at least 1 (default: 7)")
    parser.add_argument("--only", default="", help="only cases whose name holds this text, and nothing simulated")
    parser.add_argument("--ranks", type=int, default=0, help="only cases of so many ranks")
    parser.add_argument("--check", action="store_true", help="exit 0 only if every floor held in this run")
    parser.add_argument("--json", metavar="FILE", help="write JSON lines: the machine, then each result")
    parser.add_argument("--html", metavar="FILE", help="write one page with plots")
    parser.add_argument("--directory", default="/dev/shm", help="where pool and files lie (default: /dev/shm)")
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error("--rounds: at least 1")
    if given.quick:
        given.rounds = min(given.rounds, 3)
    return given


def run_cases(given, all_cases):
    cases = [case for case in all_cases if given.only in case.name and given.ranks in (0, case.ranks)]
    if not cases:
        names = sorted({case.name for case in all_cases})
        raise Trouble(f"no case of {given.ranks or 'any'} ranks is called like '{given.only}'; there are: {', '.join(names)}")
    facts = machine()
    limit = memcpy_rate()
    facts["memcpy_two_threads_mib_per_s"] = round(limit)
    results = []
    print(f"{'MiB/s: min, median, max; ratio: ours / theirs':<48}{'ours':>24} |{'theirs':>26} {'their setting':<13}"
          f"{'ratio':>6} {'95 % interval':<16}", flush=True)
    with Rig(given.directory) as rig:
        for case in cases:
            for result in compare(rig, case, given.rounds):
                results.append(result)
                print(line_of(result, limit), flush=True)
    if given.json:
        lines = [json.dumps({"machine": facts})] + [json.dumps(result) for result in results]
        Path(given.json).write_text("\n".join(lines) + "\n")
    if given.html:
        Path(given.html).write_text(page(results, facts, limit))
    missed = [result for result in results if result["ratio"] < result["floor"]]
    if given.check:
        print(f"{len(results) - len(missed)} of {len(results)} floors held")
    return 1 if given.check and missed else 0


def run_locks(given):
    """The simulation of many aggregators, then real processes on this machine."""
    with tempfile.TemporaryDirectory(prefix="sluice-compare.") as directory:
        figures = Path(directory) / "simulated.json"
        line = [str(BENCH / "lock_modes"), "--json", str(figures)] + (["--check"] if given.check else [])
        code = 0 if given.only else subprocess.run(line, check=False).returncode
        code = max(code, run_cases(given, lock_cases(given.quick)))
        if given.json and figures.exists():
            with Path(given.json).open("a") as lines:
                lines.write(json.dumps({"simulated": json.loads(figures.read_text())}) + "\n")
    return code


def main():
    given = arguments()
    if MPIEXEC is None:
        raise Trouble("there is no mpiexec; install mpich")
    return run_locks(given) if given.suite == "locks" else run_cases(given, mpiio_cases(given.quick))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Trouble as trouble:
        print(f"compare: {trouble}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
