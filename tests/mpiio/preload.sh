#!/usr/bin/env bash
# Preloaded into programs without MPI, the library does nothing and says nothing.
#
#   preload.sh BUILD_DIR MPI_PROGRAM
set -euo pipefail

library=$1/lib/libsluice_romio.so program=$2
mpiexec=$(command -v mpiexec.mpich || command -v mpiexec)
directory=$(mktemp -d "${TMPDIR:-/tmp}/sluice-preload.XXXXXX")
trap 'rm -rf "$directory"' EXIT

quiet() {
  "$@" >"$directory/out" 2>"$directory/err" || {
    echo "FAILED: $*: exit code $?" >&2
    cat "$directory/out" "$directory/err" >&2
    exit 1
  }
  if [[ -s $directory/err ]]; then
    echo "FAILED: $* wrote to standard error:" >&2
    cat "$directory/err" >&2
    exit 1
  fi
}

quiet env LD_PRELOAD="$library" true
quiet env LD_PRELOAD="$library" LD_BIND_NOW=1 true
quiet env LD_PRELOAD="$library" sh -c 'ls / | wc -l'
# The launcher and everything it starts inherit it.
quiet env LD_PRELOAD="$library" "$mpiexec" -n 2 "$program" 4 "$directory/"
grep -q 'passed' "$directory/out"
quiet env LD_PRELOAD="$library" LD_BIND_NOW=1 "$mpiexec" -n 2 "$program" 4 "$directory/"
# Loading it pulls in no library but libc.
needed=$(readelf -d "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -v '^libc\.so' || :)
[[ -z $needed ]] || {
  echo "FAILED: the library needs $needed" >&2
  exit 1
}
echo passed
