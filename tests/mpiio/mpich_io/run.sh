#!/usr/bin/env bash
# Compiles one of the MPICH package's I/O tests with the stock compiler wrapper and runs it on Sluice files.
#
#   run.sh MODE BUILD_DIR ROMIO_DIR SOURCE RANKS ARGUMENT...      MODE as in run_mpi_test.sh
#
# SOURCE is below the package's test/mpi/io, or "romio/NAME.c" for ROMIO's own tests. Passes when the program says so.
set -euo pipefail

mode=$1 build=$2 romio=$3 source=$4 ranks=$5
shift 5
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
case $source in
  romio/misc.c) file=$romio/obj/test/misc.c ;;  # configure fills it in
  romio/*) file=$romio/src/src/mpi/romio/test/${source#romio/} ;;
  *) file=$romio/src/test/mpi/io/$source ;;
esac
programs=$build/tests/mpich_io
program=$programs/$(basename "${source//\//_}" .c)
mkdir -p "$programs"
if [[ ! -x $program || $file -nt $program ]]; then
  "$(command -v mpicc.mpich || command -v mpicc)" -w -O1 -I"$here" -I"$romio/src/test/mpi/include" "$file" -o "$program.$$"
  mv "$program.$$" "$program"
fi
# The programs name their files without a prefix.
if [[ $mode == double || $mode == service ]]; then
  export ROMIO_FSTYPE_FORCE=sluice:
fi
said=$("$here/../run_mpi_test.sh" "$mode" "$build" "$ranks" "$program" "$@" 2>&1) || {
  printf '%s\n' "$said"
  exit 1
}
printf '%s\n' "$said"
grep -qiE 'no errors|^passed|external32 datarep is BIG ENDIAN' <<<"$said"
