#!/usr/bin/env python3
"""Keeps the rooms apart: who may include whom, where third-party headers may be, which calls are banned, how large and
how named a file may be, and that every header compiles alone.

    check.py includes|calls|files [--root DIR]
    check.py headers --build DIR [--root DIR] [--jobs N]
    check.py selftest

Prints one line for each breach and ends with 1 when there is any.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

# Which rooms a room may include. Every room may include itself.
ROOMS = {
    "base": [],
    "transport": ["base"],
    "protocol": ["base", "transport"],
    "lockmgr": ["base", "transport"],
    "storage": ["base", "transport"],
    "burst_buffer": ["base", "transport"],
    "engine": ["base", "transport", "protocol", "lockmgr", "storage", "burst_buffer"],
    "client": ["base", "transport", "protocol"],
    "adio": ["base", "client"],
    "server": ["base", "transport", "protocol", "lockmgr", "storage", "burst_buffer", "engine"],
    "tools": ["base", "client"],
    "bench": ["base", "client"],
    "tests": ["base", "transport", "protocol", "lockmgr", "storage", "burst_buffer", "engine", "client", "adio", "server",
              "tools", "bench"],
}

# Single headers that files may include although their room may not: (files, header).
DOORS = [
    (r"client/.*", r"lockmgr/(client|strategy|lock_types|lock_messages)\.h"),  # the lock manager's client side
    (r"bench/lock_modes/.*", r"lockmgr/(client|server|strategy|lock_messages)\.h|transport/sim/sim_network\.h"),
    (r"tools/.*", r"lockmgr/text\.h"),                                    # the exerciser behind `sluice locktable`
    (r"tools/commands/dump\.cc", r"burst_buffer/(staging_log|pmem/pmem_domain)\.h|storage/shard_format\.h"),
    (r"server/control_test\.cc", r"client/control_client\.h"),            # both ends of the control socket
    (r"server/pool_test\.cc", r"client/service\.h"),                      # both ends of the pool's lock
]

# Third-party headers and the files that may include them.
TEST_FILES = (r"tests/.*|[^/]+/(.*/)?[a-z0-9_]*test[a-z0-9_]*\.(cc|h)|[^/]+/(.*/)?testing/.*|"
              r"[^/]+/(.*/)?[a-z0-9_]+_(suite|rig|model)\.(cc|h)|transport/(sim/seed_trace\.h|ofi/peer_process\.cc)")
THIRD_PARTY = [
    (r"(isa-l/.*|isa-l\.h|erasure_code\.h|crc\.h)", r"storage/erasure/.*|base/checksum.*"),
    (r"rdma/.*", r"transport/ofi/.*"),
    (r"libpmem.*", r"burst_buffer/pmem/.*"),
    (r"(adio|adioi|adio_extern|adio_cb_config_list|romioconf|mpioimpl|mpiu_external32|mpl|mpl_.*|mpio|mpitypedefs|hint_fns|heap-sort)\.h",
     r"adio/romio/.*"),
    (r"mpi\.h", r"adio/.*|bench/.*|tests/.*"),
    (r"hdf5(_hl)?\.h", r"bench/.*|tests/.*"),
    (r"pnetcdf\.h", r"tests/pnetcdf/.*"),
    (r"boost/.*", r"server/.*|client/(control_client|local_socket).*"),
    (r"sqlite3\.h", r"storage/.*"),
    (r"toml\+\+/.*", r"server/.*"),
    (r"spdlog/.*", r"base/.*"),
    (r"CLI/.*", r"tools/.*|bench/.*|lockmgr/[a-z_]*bench\.cc"),
    (r"nlohmann/.*", r"server/.*|tools/.*|bench/.*|tests/.*|client/.*|lockmgr/[a-z_]*bench\.cc"),
    (r"flatbuffers/.*", r"transport/.*|protocol/.*|storage/.*|engine/.*|client/.*|tests/.*"),
    (r"(fmt|tl)/.*", r".*"),
    (r"benchmark/.*", r"bench/.*|.*_bench\.cc"),
    (r"(gtest|gmock|rapidcheck)(/.*|\.h)", TEST_FILES),
]
SYSTEM = re.compile(r"(sys|linux|net|netinet|arpa|asm|sanitizer)/.+|[a-z0-9_]+(\.h)?")

# Headers that the build writes outside of any room: (file, header).
GENERATED = [("adio/romio/runtime.c", "sluice_romio_version.h")]

# Calls that a room must not make: (name, pattern, files that may).
TESTS_AND_BENCH = TEST_FILES + r"|bench/.*|.*_bench\.cc"
BANNED = [
    ("sleeping", r"\b(sleep_for|sleep_until|usleep|nanosleep|sleep)\s*\(",
     # the shm provider has nothing to wait on while operations are outstanding: a bounded nap
     r"transport/shm/shm_wire\.cc|" + TESTS_AND_BENCH),
    ("system() and popen()", r"(?<![\w.>])(std::)?(system|popen)\s*\(", TEST_FILES),
    ("unbounded string functions", r"\b(strcpy|strcat|sprintf|vsprintf|gets|strtok|alloca)\s*\(", r""),
    ("rand()", r"(?<![\w.>])(std::)?s?rand\s*\(", r""),
    ("atoi() and its like", r"\b(atoi|atol|atoll|atof)\s*\(", TEST_FILES),
    ("abort()", r"(?<![\w.>])(std::)?abort\s*\(\s*\)", r"base/assert\.h|" + TEST_FILES),
    ("exit()", r"(?<![\w.>])(std::)?_?(exit|quick_exit|_Exit)\s*\(", r"tools/.*|server/main\.cc|" + TESTS_AND_BENCH),
    ("MPI_Abort()", r"\bMPI_Abort\s*\(", r"bench/.*|tests/.*"),
    ("std::cout and std::cerr", r"\bstd::c(out|err)\b", r"tools/.*|" + TESTS_AND_BENCH),
    ("printing", r"(?<![\w.>])(std::)?(printf|puts|putchar)\s*\(|\bfprintf\s*\(", 
     # runtime.c: the one thing the driver tells a program's user, that this is the wrong MPICH
     r"base/assert\.h|tools/.*|server/main\.cc|adio/romio/runtime\.c|" + TESTS_AND_BENCH),
    ("signal()", r"(?<![\w.>])(std::)?signal\s*\(\s*SIG", r"tools/.*|server/.*|" + TESTS_AND_BENCH),
    ("assert() that NDEBUG removes", r"(?<![\w_])assert\s*\(", r"tests/.*"),
]

SOURCE_SUFFIXES = {".cc", ".c", ".h", ".fbs"}
MAX_LINES = 800
BAD_NAMES = re.compile(r"(^|_)(utils?|helpers?|common|misc)(_|\.|$)")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def sources(root):
    """Relative paths, with '/', of all sources in the rooms, in order."""
    found = []
    for room in ROOMS:
        for path in (root / room).rglob("*"):
            if path.suffix in SOURCE_SUFFIXES and path.is_file():
                found.append(path.relative_to(root).as_posix())
    return sorted(found)


def read(root, name):
    return (root / name).read_text(encoding="utf-8", errors="replace")


TOKENS = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^()\\ ]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)


def strip(text):
    """Comments and the contents of literals are blanked; lines stay where they are."""

    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))

    return TOKENS.sub(blank, text)


def strip_comments(text):
    return TOKENS.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)) if m.group(0)[:2] in ("//", "/*") else m.group(0), text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def check_include(name, header, quoted):
    """Why `name` may not include `header`, or nothing."""
    room = name.split("/")[0]
    first = header.split("/")[0]
    for pattern, allowed in THIRD_PARTY:
        if re.fullmatch(pattern, header):
            if re.fullmatch(allowed, name):
                return None
            return f"<{header}> is for {allowed} only"
    if "/" in header and first in ROOMS:
        if first == room or first in ROOMS[room]:
            return None
        if any(re.fullmatch(f, name) and re.fullmatch(p, header) for f, p in DOORS):
            return None
        if first == "tests" and header.startswith("tests/support/") and re.fullmatch(TEST_FILES, name):
            return None
        return f"room {room} must not include room {first} ({header})"
    if (name, header) in GENERATED:
        return None
    if quoted:
        return f'"{header}" is not named from the root of the repository'
    if not SYSTEM.fullmatch(header):
        return f"<{header}> is of a library that tests/layering/check.py does not know: say there which room may use it"
    return None


def includes(root):
    breaches = []
    for name in sources(root):
        text = strip_comments(read(root, name))
        for match in INCLUDE.finditer(text):
            why = check_include(name, match.group(2), match.group(1) == '"')
            if why:
                breaches.append(f"{name}:{line_of(text, match.start(2))}: {why}")
    return breaches


def calls(root):
    breaches = []
    for name in sources(root):
        if name.endswith(".fbs"):
            continue
        text = strip(read(root, name))
        for what, pattern, allowed in BANNED:
            if allowed and re.fullmatch(allowed, name):
                continue
            for match in re.finditer(pattern, text):
                breaches.append(f"{name}:{line_of(text, match.start())}: {what}: {match.group(0).strip()}")
    return breaches


def files(root):
    breaches = []
    for name in sources(root):
        lines = read(root, name).count("\n")
        if lines > MAX_LINES:
            breaches.append(f"{name}: {lines} lines, more than {MAX_LINES}")
        base = name.rsplit("/", 1)[1]
        if BAD_NAMES.search(base):
            breaches.append(f"{name}: a file is named after what it is for, not utils, helpers, common or misc")
        if not re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*", base):
            breaches.append(f"{name}: file names are snake_case")
        # The one header that foreign C programs include has an include guard instead.
        if name.endswith(".h") and name != "client/sluice.h" and "#pragma once" not in read(root, name):
            breaches.append(f"{name}: no #pragma once")
    return breaches


def flags_of(command):
    """The flags of a compile command that decide what a header sees."""
    kept, take_next = [], False
    for word in command:
        if take_next:
            kept.append(word)
            take_next = False
        elif word in ("-I", "-isystem", "-D", "-include", "-iquote"):
            kept.append(word)
            take_next = True
        elif re.match(r"-(I|D|isystem|std=|pthread|fPIC|fopenmp)", word):
            kept.append(word)
    return kept


def commands(build):
    entries = json.loads((build / "compile_commands.json").read_text())
    for entry in entries:
        words = entry.get("arguments") or shlex.split(entry["command"])
        if words and os.path.basename(words[0]) == "ccache":
            words = words[1:]
        yield pathlib.Path(entry["file"]), words, pathlib.Path(entry["directory"])


def plan_headers(root, build):
    """(header, compiler, flags, directory) for each header: the flags of the nearest source, longest common path first."""
    known = []
    for file, words, directory in commands(build):
        try:
            known.append((file.relative_to(root).as_posix(), words, directory))
        except ValueError:
            continue
    plan = []
    for header in sources(root):
        if not header.endswith(".h"):
            continue
        if header.startswith("tests/mpiio/"):  # of MPI programs, which the compiler wrapper builds
            plan.append((header, "mpicc.mpich", ["-x", "c", f"-I{root}"], build))
            continue
        language = "c" if header.startswith("adio/romio/") else "c++"
        near = [(len(os.path.commonprefix([header, name])), name, words, directory) for name, words, directory in known
                if (pathlib.Path(name).suffix == ".c") == (language == "c") and name.split("/")[0] == header.split("/")[0]]
        if near:
            best = max(near, key=lambda item: (item[0], item[1]))
            plan.append((header, best[2][0], ["-x", language] + flags_of(best[2][1:]), best[3]))
    return plan


def compile_alone(root, header, compiler, flags, directory, scratch):
    source = scratch / (header.replace("/", "__") + ".probe")
    # The second inclusion shows that a header may be included twice.
    source.write_text(f'#include "{root / header}"\n#include "{root / header}"\n')
    command = [compiler] + flags + ["-Wall", "-O0", "-c", str(source), "-o", str(source) + ".o"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:300])
    return f"{header}: does not compile alone: {first}"


def headers(root, build, jobs):
    plan = plan_headers(root, build)
    if not plan:
        return [f"{build}/compile_commands.json names no source of {root}"]
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = pool.map(lambda item: compile_alone(root, *item, pathlib.Path(scratch)), plan)
        breaches = [r for r in results if r]
    print(f"{len(plan)} headers compiled alone")
    return breaches


def selftest():
    """Plants each kind of breach in a small tree and looks whether exactly that one is found."""
    planted = [
        (includes, "storage/a.cc", '#include "burst_buffer/drain.h"\n', "room storage must not include room burst_buffer"),
        (includes, "base/a.h", '#include "transport/transport.h"\n', "room base must not include room transport"),
        (includes, "client/a.cc", '#include "lockmgr/server.h"\n', "room client must not include room lockmgr"),
        (includes, "engine/a.cc", "#include <isa-l.h>\n", "is for storage/erasure"),
        (includes, "client/a.cc", "#include <boost/asio.hpp>\n", "is for server"),
        (includes, "storage/a.cc", "#include <gtest/gtest.h>\n", "is for tests"),
        (includes, "engine/a.cc", "#  include   <rdma/fabric.h>\n", "is for transport/ofi"),
        (includes, "engine/a.cc", '#include "workers.h"\n', "not named from the root"),
        (includes, "engine/a.cc", "#include <zmq/zmq.hpp>\n", "does not know"),
        (calls, "engine/a.cc", "void f() { std::this_thread::sleep_for(x); }\n", "sleeping"),
        (calls, "storage/a.cc", "int f() { return system(\"ls\"); }\n", "system()"),
        (calls, "base/a.cc", "void f(char* a) { strcpy(a, b); }\n", "unbounded"),
        (calls, "engine/a.cc", "void f() { std::abort(); }\n", "abort()"),
        (calls, "client/a.cc", "void f() { exit(1); }\n", "exit()"),
        (calls, "adio/a.cc", "void f() { MPI_Abort(comm, 1); }\n", "MPI_Abort()"),
        (calls, "client/a.cc", "void f() { printf(\"x\"); }\n", "printing"),
        (calls, "client/a.cc", "void f() { std::cout << 1; }\n", "std::cout"),
        (calls, "engine/a.cc", "// '\nint x = rand();\n", "rand()"),
        (files, "engine/string_utils.cc", "int x;\n", "named after what it is for"),
        (files, "engine/long.cc", "int x;\n" * (MAX_LINES + 1), "more than"),
        (files, "engine/CamelCase.cc", "int x;\n", "snake_case"),
        (files, "engine/a.h", "int x;\n", "#pragma once"),
    ]
    innocent = {
        "engine/b.cc": '#include "storage/object_store.h"\n#include <vector>\n#include <sys/mman.h>\n'
                       '// std::abort(); printf("x") in words\n'
                       'const char* s = "system(1) rand() \\" exit(1)"; char c = \'"\'; int big = 1\'000; f(obj.abort(), txn->exit());\n',
        "engine/c_test.cc": '#include <gtest/gtest.h>\n#include "tests/support/wait.h"\n#include "storage/a.h"\n',
        "client/d.cc": '#include "lockmgr/client.h"\n#include "client/client.h"\n',
    }
    wrong = []
    for check, name, text, expected in planted + [(c, None, "", "") for c in (includes, calls, files)]:
        with tempfile.TemporaryDirectory() as scratch:
            root = pathlib.Path(scratch)
            for file, content in dict(innocent, **({name: text} if name else {})).items():
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                (root / file).write_text(content)
            found = check(root)
            if name is None and found:
                wrong.append(f"{check.__name__}: innocent files are blamed: {found}")
            if name is not None and not (len(found) == 1 and found[0].startswith(name) and expected in found[0]):
                wrong.append(f"{check.__name__}: {text.strip()[:60]!r} in {name} gives {found}, not one line with {expected!r}")
    wrong += selftest_headers()
    print(f"{len(planted) + 2} planted breaches")
    return wrong


def selftest_headers():
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        (root / "base").mkdir()
        (root / "base/good.h").write_text("#pragma once\n#include <string>\nstd::string f();\n")
        (root / "base/bad.h").write_text("#pragma once\nstd::string g();\n")
        (root / "base/good.cc").write_text('#include "base/good.h"\n')
        (root / "compile_commands.json").write_text(json.dumps(
            [{"file": str(root / "base/good.cc"), "directory": scratch,
              "command": f"c++ -std=c++20 -I{scratch} -c base/good.cc -o good.o"}]))
        found = headers(root, root, 2)
    if len(found) == 1 and found[0].startswith("base/bad.h: does not compile alone"):
        return []
    return [f"headers: a header that needs another first gives {found}"]


def main():
    parser = argparse.ArgumentParser(description="Checks the rooms' rules.")
    parser.add_argument("check", choices=["includes", "calls", "files", "headers", "selftest"])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.check == "selftest":
        breaches = selftest()
    elif arguments.check == "headers":
        if not arguments.build:
            parser.error("headers needs --build")
        breaches = headers(arguments.root, arguments.build.resolve(), arguments.jobs)
    else:
        breaches = {"includes": includes, "calls": calls, "files": files}[arguments.check](arguments.root)
        if not sources(arguments.root):
            breaches = [f"there are no sources in {arguments.root}"]
    for breach in breaches:
        print(breach)
    sys.exit(1 if breaches else 0)


if __name__ == "__main__":
    main()
