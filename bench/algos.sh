#!/usr/bin/env bash
# What one file teaches with several algorithms, over seeds: for each dataset and
# seed one rollout, from which every algorithm starts; prints the table of
# docs/learning.md.
#
#   bench/algos.sh OUTPUT-FOLDER [SEED...]        (default: 1 2 3 4 5; ALGOS="rloo ppo" DATASETS="lastword arith")
set -euo pipefail
out=$1; shift
[ $# -gt 0 ] || set -- 1 2 3 4 5
root=$(cd "$(dirname "$0")/.." && pwd)
A=${AGENTCLI:-$root/bin/agentcli}
mkdir -p "$out"
pass1() { tr -d ' \n' <"$1/report.json" | sed -n 's/.*"pass@1":{"value":\([0-9.e-]*\),"stderr":\([0-9.e-]*\).*/\1 \2/p' | LC_ALL=C awk '{printf "%.3f ± %.3f", $1, $2}'; }
for data in ${DATASETS:-lastword arith}; do
  case $data in
    arith) held=(--limit 64 -n 4) roll=(--limit 32 -n 8) opt=(--minibatch 64) ;;
    *) held=(--limit 256 -n 2) roll=(--limit 128 -n 8) opt=(--minibatch 128) ;;
  esac
  [ -f "$out/$data-before/report.json" ] || "$A" eval -d "$data" --split test "${held[@]}" --seed 7 --output "$out/$data-before" >/dev/null
  for seed in "$@"; do
    r="$out/$data-$seed"
    [ -f "$r.parquet" ] || "$A" rollout -d "$data" "${roll[@]}" --seed "$seed" -o "$r.parquet"
    for algo in ${ALGOS:-rloo ppo}; do
      case $algo in
        ppo) how=(--algo ppo --critic-lr 1e-4) ;;
        lora) how=(--drop-zero-std --lora-rank 16 --lr 3e-4) ;; # GRPO
        *) how=(--advantage "$algo" --drop-zero-std) ;;
      esac
      m="$r-$algo"
      [ -f "$m-after/report.json" ] && continue
      rm -rf "$m-model" "$m-after"
      t1=$(date +%s)
      "$A" train "$r.parquet" --output "$m-model" --lr 3e-5 --betas .9,.999 --seed "$seed" "${how[@]}" "${opt[@]}" >/dev/null
      t2=$(date +%s)
      "$A" eval -d "$data" --model "$m-model" --split test "${held[@]}" --seed 7 --output "$m-after" >/dev/null
      rm -f "$m-model"/*.safetensors "$m-model"/critic/*.safetensors
      printf '| %s | %s | %s | %s | %s | %d s |\n' "$data" "$algo" "$seed" "$(pass1 "$out/$data-before")" "$(pass1 "$m-after")" $((t2 - t1)) | tee -a "$out/table.md"
    done
  done
done
