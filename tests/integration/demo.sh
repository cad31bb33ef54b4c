#!/usr/bin/env bash
# The main job, shown and checked: `demo.sh [BUILD_DIR]`, by default on build/release (./bootstrap demo builds that first).
#
# 1. A pool of 3 targets, class EC_2P1. Four ranks write checkpoints to sluice:, the same program writes them to plain files
#    with the stock library.
# 2. Drained; one target's directory is deleted. Three ranks read every checkpoint back, h5diff compares each with the plain one.
# 3. One rank is killed with SIGKILL in the middle of a later step: that step's file shows its last synced state, the earlier
#    ones are whole.
# Exits 0 only when everything compared equal.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(cd "${1:-$here/../../build/release}" && pwd)
export PATH="$build/bin:$PATH"
checkpoint=$build/bench/checkpoint
size=256
steps=4
kill_at=V   # the last variable of /state: /mesh was flushed, /state was not

work=$(mktemp -d "${TMPDIR:-/tmp}/sluice-demo.XXXXXX")
pool=$work/pool
mkdir "$work/plain" "$work/copies" "$work/json"
finish() {
  local status=$?
  if [[ -e $pool/service.json ]]; then sluice down --pool "$pool" --no-drain >"$work/down.log" 2>&1 || cat "$work/down.log" >&2; fi
  rm -rf "$work"
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# run WHAT COMMAND...: quiet, unless it fails.
run() {
  local what=$1
  shift
  if ! "$@" >"$work/last.log" 2>&1; then
    printf 'demo: %s FAILED\n' "$what" >&2
    tail -n 30 "$work/last.log" >&2
    exit 1
  fi
}
with_sluice() {
  local ranks=$1
  shift
  mpirun -n "$ranks" -genv LD_PRELOAD "$(sluice preload)" -genv SLUICE_POOL "$pool" "$@"
}
field() { python3 -c 'import json,sys; value=json.load(open(sys.argv[1]))
for key in sys.argv[2].split("."): value=value[key]
print(value)' "$1" "$2"; }
now() { date +%s.%N; }
since() { python3 -c 'import sys; print("%.2f" % (float(sys.argv[2]) - float(sys.argv[1])))' "$1" "$(now)"; }

rows=()
row() { rows+=("$(printf '%-34s %s' "$1" "$2")"); }

printf 'demo: a pool of 3 targets, class EC_2P1, in %s\n' "$pool"
run 'starting the service' sluice up --pool "$pool" --targets 3 --class EC_2P1

printf 'demo: 4 ranks write %d checkpoints of a %dx%d mesh, to sluice: and to plain files\n' "$steps" "$size" "$size"
begin=$(now)
run 'writing to sluice:' with_sluice 4 "$checkpoint" --path 'sluice:/ckpt.%d' --size "$size" --steps "$steps"
row 'write to sluice:, 4 ranks' "$(since "$begin") s"
begin=$(now)
run 'writing plain files' mpirun -n 4 "$checkpoint" --path "$work/plain/ckpt.%d" --size "$size" --steps "$steps"
row 'write to plain files, 4 ranks' "$(since "$begin") s"

begin=$(now)
run 'draining' sluice persist / --pool "$pool"
row 'drain' "$(since "$begin") s"
sluice status --pool "$pool" --json >"$work/json/status"
left=$(field "$work/json/status" drain.bytes_left)
[[ $left == 0 ]] || { printf 'demo: FAILED: %s bytes left after the drain\n' "$left" >&2; exit 1; }

printf 'demo: deleting the directory of target 1\n'
rm -rf "$pool/targets/t1"

bytes=0
begin=$(now)
run 'reading back on 3 ranks' with_sluice 3 "$checkpoint" --verify --path 'sluice:/ckpt.%d' --size "$size" --steps "$steps"
row 'read and compared, 3 ranks' "$(since "$begin") s, $steps checkpoints equal"
for ((step = 0; step < steps; step++)); do
  run "copying /ckpt.$step" sluice cp --pool "$pool" "sluice:/ckpt.$step" "$work/copies/ckpt.$step"
  run "h5diff of /ckpt.$step" h5diff "$work/plain/ckpt.$step" "$work/copies/ckpt.$step"
  bytes=$((bytes + $(stat -c %s "$work/copies/ckpt.$step")))
done
row 'h5diff against stock MPI-IO' "$steps of $steps equal, $bytes bytes"
sluice status --pool "$pool" --json >"$work/json/status"
degraded=$(field "$work/json/status" counters.degraded_blocks)
[[ $degraded -gt 0 ]] || { printf 'demo: FAILED: no degraded read was counted (%s), so the lost target was not noticed\n' "$degraded" >&2; exit 1; }
row 'blocks rebuilt from the others' "$degraded"

printf 'demo: killing one of 4 ranks in the middle of step %d\n' "$steps"
if with_sluice 4 "$checkpoint" --path 'sluice:/killed.%d' --size "$size" --steps $((steps + 1)) --kill-self "$steps:$kill_at:2" >"$work/last.log" 2>&1; then
  printf 'demo: FAILED: the program survived the death of a rank\n' >&2
  exit 1
fi
run 'the state after the kill' with_sluice 3 "$checkpoint" --verify --synced-variables 3 --path 'sluice:/killed.%d' --size "$size" --steps $((steps + 1))
row 'rank killed in the middle of a step' "that file shows its last sync (3 of 6 variables), $steps earlier ones whole"

row 'where the data lies' "$pool/targets (t1 deleted), class EC_2P1"
printf '\n'
printf '  %s\n' "${rows[@]}"
printf '\ndemo: everything compared equal\n'
