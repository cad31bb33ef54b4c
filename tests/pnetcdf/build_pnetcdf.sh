#!/usr/bin/env bash
# Builds PnetCDF, from its source package, unchanged, as a static library over the stock MPICH of the machine. (The
# packaged library is built for another MPI.)
#
#   build_pnetcdf.sh OUT_DIR
#
# Leaves in OUT_DIR: lib/libpnetcdf.a, include/pnetcdf.h, test/ (programs of PnetCDF's own tests), and stamp, which
# names the version. A run that finds its own stamp does nothing. Nothing of the machine's is changed.
set -euo pipefail

job=pnetcdf
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../cmake/apt_source.sh"

[[ $# == 1 && -n $1 ]] || refuse "usage: build_pnetcdf.sh OUT_DIR"
mkdir -p "$1"
out=$(cd "$1" && pwd)

for tool in apt-get apt-config dpkg-query dpkg-source autoreconf automake libtoolize m4 make gcc mpicc.mpich; do
  command -v "$tool" >/dev/null || refuse "$tool is needed and not installed; run ./bootstrap deps"
done
# Those of PnetCDF's own tests that are run, as DIRECTORY/PROGRAM: they open no file that is there already, which
# PnetCDF does past MPI-IO in part (run.sh).
tests=(nonblocking/i_varn_int64 nonblocking/req_all nonblocking/test_bput testcases/collective_error testcases/flexible2
  testcases/varn_int)
stamp="mpich $(dpkg-query -W -f='${source:Version}' libmpich-dev)
recipe $(cat "$here/build_pnetcdf.sh" "$here/../../cmake/apt_source.sh" | sha256sum | cut -c1-16)"
exec 9>"$out/.lock"
flock 9
if [[ -f $out/stamp && $(<"$out/stamp") == "$stamp" ]]; then
  exit 0
fi

started=$SECONDS
rm -rf "$out"/{stamp,download,src,obj,lib,include,test}
mkdir -p "$out"/{download,obj,lib,include,test}
say "fetching the source of PnetCDF"
fetch_source pnetcdf "$out/download" ||
  refuse "the source of PnetCDF is not offered by this machine's package sources (log: $out/download/download.log)"
dsc=("$out"/download/pnetcdf_*.dsc)
step "$out/download/unpack.log" dpkg-source --no-check -x "${dsc[0]}" "$out/src"
cd "$out/src"
say "configuring PnetCDF"
step "$out/download/autoreconf.log" autoreconf -i
export MPICH_CC=gcc
if command -v ccache >/dev/null; then
  MPICH_CC="ccache gcc"
  export CCACHE_BASEDIR="$out"
fi
cd "$out/obj"
step "$out/obj/configure.log" ../src/configure --disable-fortran --disable-cxx --disable-shared --enable-static \
  --with-mpi=/usr MPICC=mpicc.mpich CFLAGS="-O2 -g -fPIC"
say "compiling PnetCDF"
step "$out/obj/make.log" make -j"$(nproc)" -C src
step "$out/obj/make-tests.log" make -j"$(nproc)" -C test/common libtestutils.la
for test in "${tests[@]}"; do
  step "$out/obj/make-${test//\//-}.log" make -C "test/${test%/*}" "${test#*/}"
  cp "test/$test" "$out/test/"
done
cp src/libs/.libs/libpnetcdf.a "$out/lib/"
cp src/include/pnetcdf.h "$out/include/"
rm -rf "$out"/{download,src,obj}
printf '%s\n' "$stamp" >"$out/stamp"
say "PnetCDF is ready in $out ($((SECONDS - started)) s)"
