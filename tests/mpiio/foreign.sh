#!/usr/bin/env bash
# A program of another MPI library, or of another MPICH, is refused in one sentence that says what to do.
#
#   foreign.sh BUILD_DIR PROGRAM VERSION
set -euo pipefail

said=$(LD_PRELOAD=$1/lib/libsluice_romio.so "$2" 2>&1 >/dev/null)
lines=$(printf '%s\n' "$said" | wc -l)
[[ $lines == 1 && $said == *"$3"* && $said == *"was built for MPICH"* && $said == *"./bootstrap build"* ]] || {
  printf 'FAILED: it says\n%s\n' "$said" >&2
  exit 1
}
echo passed
