#!/usr/bin/env bash
# Runs an MPI program with libsluice_romio.so preloaded, in a directory of its own.
#
#   run_mpi_test.sh MODE BUILD_DIR RANKS PROGRAM ARGUMENT...
#
# "@" at the begin of an argument becomes the prefix of the program's file names. MODE:
#   double   sluice: files kept by the substitute of the client library (abi_double.c)
#   ufs      plain files
#   service  sluice: files of a service that is started for the test
#   bare     plain files without the library: what the stock MPI does
# SLUICE_TEST_YIELD=LIBRARY: preloaded too; bench/yield, for tests of many ranks.
# SLUICE_TEST_LINKED=1: the program is linked with the library, which is then not preloaded.
set -euo pipefail

mode=$1 build=$2 ranks=$3
shift 3
mpiexec=$(command -v mpiexec.mpich || command -v mpiexec)
directory=$(mktemp -d "${TMPDIR:-/tmp}/sluice-mpi.XXXXXX")
stop=true
finish() {
  local status=$?
  $stop
  rm -rf "$directory"
  exit "$status"
}
trap finish EXIT

prefix=sluice:/
library=$build/lib/libsluice_romio.so
case $mode in
  double)
    library=$build/tests/adio_double/libsluice_romio.so
    export SLUICE_DOUBLE_DIR=$directory
    ;;
  ufs | bare) prefix=$directory/ ;;
  service)
    export SLUICE_POOL=$directory/pool
    "$build/bin/sluice" up --pool "$SLUICE_POOL" --targets 3 --hot-size "${SLUICE_TEST_HOT_SIZE:-256m}" >"$directory/up.log" 2>&1 || {
      cat "$directory/up.log" >&2
      exit 1
    }
    stop_service() { "$build/bin/sluice" down --pool "$SLUICE_POOL" --no-drain >"$directory/down.log" 2>&1 || cat "$directory/down.log" >&2; }
    stop=stop_service
    ;;
  *)
    echo "run_mpi_test.sh: no mode $mode" >&2
    exit 2
    ;;
esac

preload=()
if [[ $mode != bare && -z ${SLUICE_TEST_LINKED:-} ]]; then
  preload=(-genv LD_PRELOAD "$library${SLUICE_TEST_YIELD:+:$SLUICE_TEST_YIELD}")
fi
arguments=()
for argument in "$@"; do
  [[ $argument == @* ]] && argument=$prefix${argument#@}
  arguments+=("$argument")
done
cd "$directory"
"$mpiexec" -n "$ranks" "${preload[@]}" "${arguments[@]}"
