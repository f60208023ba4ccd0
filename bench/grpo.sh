#!/usr/bin/env bash
# The same GRPO steps by TRL's GRPOTrainer and by `agentcli loop`: SmolLM2,
# lastword, 16 prompts x 8 replies, float32, on this machine's CPU, one after the
# other, for each seed (of the prompts, the sampling and the order). Prints each
# step's reward and seconds, and the peak memory. What an earlier run finished is
# not run again.
#
#   bench/grpo.sh OUTPUT-FOLDER [STEPS [SEED...]]      (default: 3 steps, seed 1)
#
# PYTHON: one with torch 2.11, transformers, trl. WHO="ours trl": one of them alone.
# PARTS: TRL's micro-batches a step (4).
set -euo pipefail
out=$1 steps=${2:-3}
shift $(($# > 2 ? 2 : $#))
[ $# -gt 0 ] || set -- 1
root=$(cd "$(dirname "$0")/.." && pwd)
A=${AGENTCLI:-$root/bin/agentcli}
PYTHON=${PYTHON:-python3}
mkdir -p "$out"
gguf=$(ls "${XDG_CACHE_HOME:-$HOME/.cache}"/agentcli/models/*.gguf | head -1)
[ -f "$out/model/config.json" ] || "$A" model convert "$gguf" "$out/model" >/dev/null
peak() { "$PYTHON" - "$@" <<'P'
import resource, subprocess, sys, time
t = time.time()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(f"peak memory {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6:.2f} GB, {time.time() - t:.1f} s in all")
P
}
for seed in "$@"; do
  prompts="$out/prompts-$seed-$steps.jsonl" ours="$out/ours-$seed" trl="$out/trl-$seed"
  [ -f "$prompts" ] || "$A" datasets show lastword -n $((16 * steps)) --seed "$seed" >"$prompts"
  if [[ ${WHO:-ours trl} == *ours* ]]; then
    if [ ! -f "$ours.txt" ]; then
      rm -rf "$ours"
      peak "$A" loop --model "$out/model" -d lastword --seed "$seed" --steps "$steps" --tasks 16 -n 8 --lr 2e-5 --minibatch 0 --betas .9,.999 --dtype float32 --old-logprobs file \
        --save-every 1000 --eval-every 0 --output "$ours" 2>"$ours.log" >"$ours.part"
      { grep -o 'step [0-9]*/.*' "$ours.log"; cat "$ours.part"; } >"$ours.txt"
      rm "$ours.part"
    fi
    echo "agentcli loop, seed $seed:"
    cat "$ours.txt"
  fi
  if [[ ${WHO:-ours trl} == *trl* ]]; then
    if [ ! -f "$trl.txt" ]; then
      peak "$PYTHON" "$root/bench/grpo_peer.py" "$out/model" "$prompts" "$steps" "$trl.jsonl" "$seed" "${PARTS:-4}" 2>"$trl.log" >"$trl.part"
      cat "$trl.jsonl" "$trl.part" >"$trl.txt"
      rm "$trl.part"
    fi
    echo "TRL, seed $seed:"
    cat "$trl.txt"
  fi
done
