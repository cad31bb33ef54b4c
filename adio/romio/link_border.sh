#!/usr/bin/env bash
# Makes one relocatable object of ROMIO without the parts that Sluice replaces, and of Sluice's own objects.
#
#   link_border.sh ROMIO_DIR WORK_DIR OUT.o OBJECT...
#
# Left out of ROMIO: its error glue, its setting of statuses, and a function that only libmpich calls.
# Renamed to romio_NAME: what Sluice defines itself and hands on to ROMIO for files that are not its own.
# All references to MPI become weak, so that a process without MPI can load the library (runtime.h).
set -euo pipefail

romio=$1 work=$2 out=$3
shift 3

left_out=(mpio_err.o status_setb.o mpir_cst_filesys.o)
# Renamed inside the object that defines them; calls from ROMIO's other objects then reach Sluice's definition.
internal=(ad_get_sh_fp.o:ADIO_Get_shared_fp ad_set_sh_fp.o:ADIO_Set_shared_fp get_fp_posn.o:ADIOI_Get_position
  eof_offset.o:ADIOI_Get_eof_offset byte_offset.o:ADIOI_Get_byte_offset system_hints.o:ADIOI_process_system_hints)
# MPI functions, with and without profiling name.
whole=(open close delete set_view set_info set_size set_atomicity preallocate seek seek_shared get_position_shared
  read_all read_at_all write_all write_at_all read_ordered write_ordered
  read_all_begin read_at_all_begin write_all_begin write_at_all_begin read_ordered_begin write_ordered_begin
  read_all_end read_at_all_end write_all_end write_at_all_end read_ordered_end write_ordered_end
  iread_all iread_at_all iwrite_all iwrite_at_all iread iread_at iread_shared iwrite iwrite_at iwrite_shared)
# Functions of large counts, which ROMIO ends with an assertion when the count is large.
large=(read read_at read_shared iread iread_at iread_shared write write_at write_shared iwrite iwrite_at iwrite_shared
  read_all read_at_all read_ordered read_all_begin read_at_all_begin read_ordered_begin iread_all iread_at_all
  write_all write_at_all write_ordered write_all_begin write_at_all_begin write_ordered_begin iwrite_all iwrite_at_all)

rm -rf "$work"
mkdir -p "$work"
cd "$work"
ar x "$romio/lib/libromio.a"
rm "${left_out[@]}"
for pair in "${internal[@]}"; do
  symbol=${pair#*:}
  objcopy --redefine-sym "$symbol=romio_$symbol" "${pair%%:*}"
done
{
  for name in "${whole[@]}"; do
    printf '%s\n' "MPI_File_$name romio_weak_File_$name" "PMPI_File_$name romio_File_$name"
  done
  for name in "${large[@]}"; do
    printf '%s\n' "MPI_File_${name}_c romio_weak_File_${name}_c" "PMPI_File_${name}_c romio_File_${name}_c"
  done
} >renamed
for object in *.o; do
  objcopy --redefine-syms=renamed "$object"
done
ld -r -o border.o ./*.o "$@" "$romio/lib/libmpl.a"
objcopy --wildcard --weaken-symbol='MPI*' --weaken-symbol='PMPI*' border.o "$out"
