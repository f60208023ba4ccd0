#!/usr/bin/env bash
# A model with random weights learns to look: fineprint, whose answers only a zoom shows. A cold
# start by demonstrations, then GRPO by `agentcli loop` with the tool, in the chat format of
# Qwen2.5-VL; figures before and after on 256 held-out problems.
#
#   bench/look.sh FOLDER [SEED...]       (default: 1 2 3 4 5)
#
# The cold start ends with the split glances, with START=traces with traces, whose looks are more often at the right
# field. START=uniform STEPS=100 begins where the looks are at any field: that of traces goes on for 80 updates,
# at a low rate so that the places are not forgotten, with looks drawn uniformly; for 120 where more than .45 are
# right greedily after 80. ENTROPY is a bonus, LOOP_FLAGS are further flags of the loop.
# TOOLS=none takes the tool away after the cold start. LEVEL=2 (3, 4) is a harder level of fineprint, MORE=4 shows so
# many times as many places and crops in the first part of the cold start. A seed that an earlier call finished is not run again.
set -euo pipefail
out=$1
shift
[ $# -gt 0 ] || set -- 1 2 3 4 5
root=$(cd "$(dirname "$0")/.." && pwd)
A=${AGENTCLI:-$root/bin/agentcli}
start=${START:-glances}
split=glances
[ "$start" = glances ] || split=traces
entropy=${ENTROPY:-0}
read -ra flags <<<"${LOOP_FLAGS:-}"
steps=${STEPS:-20}
tools=${TOOLS:-image_zoom_in_tool}
more=${MORE:-1}
data=(-d fineprint --level "${LEVEL:-1}")

demonstrations() { # FOLDER SPLIT COUNT SEED NAME
  [ -f "$1/$5.parquet" ] ||
    "$A" rollout "${data[@]}" --split "$2" --limit "$3" -n 1 --seed "$4" --model "replay:$1/init" -o "$1/$5.parquet" 2>>"$1/log"
}

sft() { # FOLDER FROM TO LR WARMUP BATCH FLAGS...
  local d=$1 from=$2 to=$3 lr=$4 warmup=$5 batch=$6
  shift 6
  [ -d "$d/$to" ] || "$A" train --algo sft --model "$d/$from" -o "$d/$to" --train-vision all --lr "$lr" --warmup-steps "$warmup" \
    --minibatch "$batch" --betas .9,.99 --weight-decay .01 --dtype float32 "$@" >/dev/null 2>>"$d/log"
}

measure() { # FOLDER MODEL NAME: at temperature 1 and greedy
  for t in 1 0; do
    [ -d "$1/$3-$t" ] || "$A" eval "${data[@]}" --limit 256 -n 1 --seed 7 --temperature $t --dtype float32 --tools "$tools" --model "$2" --output "$1/$3-$t" \
      >/dev/null 2>>"$1/log"
  done
}

number() { tr -d ' \n' <"$1/report.json" | sed -n "s/.*\"$2\":\({\"value\":\)*\([0-9.e-]*\).*/\2/p"; }

printf '| seed | start | temperature 1: before, after | greedy: before, after | looks: before, after | s |\n|---|---|---|---|---|---|\n'
for seed in "$@"; do
  d="$out/seed-$seed"
  mkdir -p "$d"
  begun=$(date +%s)
  [ -d "$d/init" ] || "$A" model init --config "$root/examples/look/config.json" --seed "$seed" -o "$d/init"
  demonstrations "$d" places $((3600 * more)) "$seed" places
  demonstrations "$d" crops $((900 * more)) "$seed" crops
  demonstrations "$d" "$split" 9600 "$seed" "$split"
  demonstrations "$d" places 1200 "$((seed + 100))" again # so that they are not forgotten
  demonstrations "$d" crops 600 "$((seed + 100))" crops-again
  sft "$d" init skills 7e-4 10 32 "$d/places.parquet" "$d/crops.parquet"
  sft "$d" skills start 7e-4 10 32 "$d/$split.parquet" "$d/again.parquet" "$d/crops-again.parquet" --schedule cosine
  from=start before=before
  if [ "$start" = uniform ]; then
    for count in 5120 7680; do
      from=even-$count before=even-$count
      demonstrations "$d" uniform "$count" "$((seed + 300))" "uniform-$count"
      sft "$d" start "$from" 1e-4 0 64 "$d/uniform-$count.parquet"
      measure "$d" "$d/$from" "$before"
      awk -v greedy="$(number "$d/$before-0" 'pass@1')" 'BEGIN {exit greedy > .45}' && break
    done
  fi
  measure "$d" "$d/$from" "$before"
  [ -f "$d/loop/model.safetensors" ] || "$A" loop "${data[@]}" --model "$d/$from" --steps "$steps" --tasks 16 -n 8 --seed "$seed" --tools "$tools" \
    --dtype float32 --train-vision all --entropy-coef "$entropy" --lr 1e-4 --epochs 2 --betas .9,.99 --minibatch 0 --eval-every "$steps" --eval-tasks 64 --eval-samples 1 "${flags[@]}" --output "$d/loop" >/dev/null 2>>"$d/log"
  measure "$d" "$d/loop" after
  [ -f "$d/seconds" ] || echo $(($(date +%s) - begun)) >"$d/seconds"
  printf '| %s | %s | %.3f, %.3f | %.3f, %.3f | %.2f, %.2f | %s |\n' "$seed" "$start" \
    "$(number "$d/$before-1" 'pass@1')" "$(number "$d/after-1" 'pass@1')" "$(number "$d/$before-0" 'pass@1')" "$(number "$d/after-0" 'pass@1')" \
    "$(number "$d/$before-1" valid_calls_per_trajectory)" "$(number "$d/after-1" valid_calls_per_trajectory)" "$(cat "$d/seconds")"
done
