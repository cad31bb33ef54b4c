#!/usr/bin/env bash
# Builds ROMIO, from the source package of exactly the MPICH that is installed, as position-independent
# static libraries over the stock libmpich.
#
#   build_romio.sh OUT_DIR
#
# Leaves in OUT_DIR: lib/libromio.a, lib/libmpl.a, include/ (adio.h, romioconf.h, mpl headers ...), src/ (the
# unpacked source package; its I/O tests are run later), and stamp, which names the versions. A run that finds
# its own stamp does nothing. The machine's package sources and lists are read, never changed: the package
# manager works on private copies below OUT_DIR.
set -euo pipefail

job=romio
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../cmake/apt_source.sh"

# The version of the source package that binary package $1 was built from; empty when it is not installed.
source_version() {
  local state version
  if read -r state version < <(dpkg-query -W -f='${db:Status-Status} ${source:Version}\n' "$1" 2>/dev/null) &&
    [[ $state == installed ]]; then
    printf '%s' "$version"
  fi
}

[[ $# == 1 && -n $1 ]] || refuse "usage: build_romio.sh OUT_DIR"
mkdir -p "$1"
out=$(cd "$1" && pwd)

for tool in apt-get apt-config dpkg-query dpkg-source dpkg-architecture make gcc mpicc.mpich; do
  command -v "$tool" >/dev/null || refuse "$tool is needed and not installed; run ./bootstrap deps"
done
version=$(source_version libmpich-dev)
[[ -n $version ]] || refuse "the package libmpich-dev is not installed; run ./bootstrap deps"

stamp="mpich-source $version
recipe $(cat "$here/build_romio.sh" "$here/../../cmake/apt_source.sh" | sha256sum | cut -c1-16)"
exec 9>"$out/.lock"
flock 9
if [[ -f $out/stamp && $(<"$out/stamp") == "$stamp" ]]; then
  exit 0
fi

started=$SECONDS
rm -rf "$out"/{stamp,download,src,obj,prefix,lib,include}
mkdir -p "$out"/{download,obj,prefix,lib,include}

say "fetching the source of MPICH $version"
fetch_source "mpich=$version" "$out/download" ||
  refuse "the source of the installed MPICH ($version) is not offered by this machine's package sources; install the MPICH they offer (apt-get install libmpich-dev mpich) and run again (log: $out/download/download.log)"
dsc=("$out"/download/mpich_*.dsc)
step "$out/download/unpack.log" dpkg-source --no-check -x "${dsc[0]}" "$out/download/src"
mv "$out/download/src" "$out/src"
# Network libraries and manuals, most of the tree by size, have no part in ROMIO or its tests.
rm -rf "$out"/src/modules/{hwloc,json-c,libfabric,ucx,yaksa} "$out"/src/{doc,man,www}

# ROMIO wants one prefix; the distribution keeps MPICH's headers and libraries in multiarch directories.
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
mkdir "$out/prefix/bin"
ln -s "/usr/include/$multiarch/mpich" "$out/prefix/include"
ln -s "/usr/lib/$multiarch" "$out/prefix/lib"
ln -s "$(command -v mpicc.mpich)" "$out/prefix/bin/mpicc"
export MPICH_CC=gcc
if command -v ccache >/dev/null; then
  MPICH_CC="ccache gcc"
  export CCACHE_BASEDIR="$out"
fi

# Built by itself over an MPI library, ROMIO must not use the glue that reaches into MPICH's internals; configure
# has no switch for that.
romio=$out/src/src/mpi/romio
sed -i 's/^    mpio_glue=mpich$/    mpio_glue=default/' "$romio/configure"
grep -q '^    mpio_glue=default$' "$romio/configure" && ! grep -q 'mpio_glue=mpich' "$romio/configure" ||
  refuse "ROMIO of MPICH $version chooses its glue in a way this build does not know; use an MPICH of the 4.0 series"

say "configuring ROMIO"
cd "$out/obj"
# libmpich can set a status by bytes and by large counts; configure looks only for MPICH's private names.
step "$out/obj/configure.log" "$romio/configure" \
  CFLAGS="-O2 -g -fPIC -fno-strict-aliasing -DHAVE_STATUS_SET_BYTES=1 -DHAVE_MPI_STATUS_SET_ELEMENTS_X=1" \
  --with-mpi="$out/prefix" --with-file-system=ufs+nfs+testfs --enable-static --disable-shared --with-pic \
  --disable-f77 --disable-f90 --disable-dependency-tracking
say "compiling ROMIO"
step "$out/obj/make.log" make -j"$(nproc)"

cp "$out/obj/.libs/libromio.a" "$out/lib/"
cp "$out/obj/mpl/.libs/libmpl.a" "$out/lib/"
cp "$romio"/adio/include/*.h "$romio"/mpi-io/*.h "$out/obj/adio/include/romioconf.h" "$out/obj/include/mpio.h" \
  "$out/include/"
cp -r "$romio"/mpl/include/* "$out/obj/mpl/include/"*.h "$out/include/"
sed -nE 's/^#define PACKAGE_VERSION /#define SLUICE_ROMIO_MPICH_VERSION /p' "$out/include/romioconf.h" \
  >"$out/include/sluice_romio_version.h"
for file in lib/libromio.a lib/libmpl.a include/adio.h include/sluice_romio_version.h include/mpl.h; do
  [[ -s $out/$file ]] || refuse "the build left no $file; the log is $out/obj/make.log"
done
rm -rf "$out/download"
printf '%s\n' "$stamp" >"$out/stamp"
say "ROMIO of MPICH $version is ready in $out ($((SECONDS - started)) s)"
