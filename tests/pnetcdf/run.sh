#!/usr/bin/env bash
# A PnetCDF program over a service: writes a file, which must be the one that the stock library writes, and reads it.
#
#   run.sh BUILD_DIR RANKS VARIABLES_PROGRAM
#
# Before ncmpi_open goes to MPI-IO it looks at the first 8 bytes of the file itself, past MPI-IO, under the name behind
# "sluice:". A local file of that name shows it those, and nothing else.
set -euo pipefail

build=$1 ranks=$2 program=$3
mpiexec=$(command -v mpiexec.mpich || command -v mpiexec)
directory=$(mktemp -d "${TMPDIR:-/tmp}/sluice-pnetcdf.XXXXXX")
export SLUICE_POOL=$directory/pool
finish() {
  local status=$?
  "$build/bin/sluice" down --no-drain >/dev/null 2>&1 || :
  rm -rf "$directory"
  exit "$status"
}
trap finish EXIT

cd "$directory"
"$build/bin/sluice" up --targets 3 --hot-size 64m >up.log 2>&1 || {
  cat up.log >&2
  exit 1
}
preload=(-genv LD_PRELOAD "$build/lib/libsluice_romio.so")
"$mpiexec" -n "$ranks" "$program" write ufs:stock.nc
"$mpiexec" -n "$ranks" "${preload[@]}" "$program" write sluice:shared.nc
"$build/bin/sluice" cp sluice:/shared.nc copy.nc
cmp stock.nc copy.nc
head -c 8 copy.nc >shared.nc
"$mpiexec" -n "$ranks" "${preload[@]}" "$program" read sluice:shared.nc
