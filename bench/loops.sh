#!/usr/bin/env bash
# Curves with bands: `agentcli loop` on one dataset with several algorithms, over
# seeds, drawn by bench/curves as docs/learning.md shows it. A run that an earlier
# call finished is not run again.
#
#   bench/loops.sh OUTPUT-FOLDER DATASET [SEED...]     (default: 1 2 3 4 5; ALGOS="grpo rloo ppo lora" STEPS=8)
set -euo pipefail
out=$1 data=$2
shift 2
[ $# -gt 0 ] || set -- 1 2 3 4 5
root=$(cd "$(dirname "$0")/.." && pwd)
A=${AGENTCLI:-$root/bin/agentcli}
mkdir -p "$out"
curves=()
for algo in ${ALGOS:-grpo rloo ppo lora}; do
  case $algo in
    ppo) how=(--algo ppo --critic-lr 1e-4 --lr 2e-5) ;;
    lora) how=(--drop-zero-std --lora-rank 16 --lr 3e-4) ;; # GRPO
    *) how=(--advantage "$algo" --drop-zero-std --lr 2e-5) ;;
  esac
  folders=
  for seed in "$@"; do
    d="$out/$data-$algo-$seed"
    if [ ! -f "$d/curve.svg" ]; then
      rm -rf "$d"
      "$A" loop -d "$data" --seed "$seed" --steps "${STEPS:-8}" --tasks 16 -n 8 --minibatch 0 --betas .9,.999 --eval-every 2 --eval-tasks 128 --eval-samples 1 \
        --save-every 1000 --output "$d" "${how[@]}" >/dev/null 2>"$d.log"
      find "$d" -name '*.safetensors' -delete
    fi
    folders=$folders,$d
  done
  curves+=("$algo=${folders#,}")
done
cd "$root" && go run ./bench/curves -title "$data, mean and standard deviation over $# seeds" -o "$out/$data.svg" "${curves[@]}"
