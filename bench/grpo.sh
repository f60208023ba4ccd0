#!/usr/bin/env bash
# The same GRPO steps by TRL's GRPOTrainer and by `agentcli loop`: SmolLM2,
# lastword, 16 prompts x 8 replies, float32, on this machine's CPU, one after the
# other. Prints each step's reward and seconds, and the peak memory.
#
#   bench/grpo.sh OUTPUT-FOLDER [STEPS]      (PYTHON: one with torch 2.11, transformers, trl)
set -euo pipefail
out=$1 steps=${2:-3}
root=$(cd "$(dirname "$0")/.." && pwd)
A=$root/bin/agentcli
PYTHON=${PYTHON:-python3}
mkdir -p "$out"
gguf=$(ls "${XDG_CACHE_HOME:-$HOME/.cache}"/agentcli/models/*.gguf | head -1)
[ -f "$out/model/config.json" ] || "$A" model convert "$gguf" "$out/model" >/dev/null
[ -f "$out/prompts.jsonl" ] || "$A" datasets show lastword -n $((16 * steps)) --seed 1 >"$out/prompts.jsonl"
peak() { "$PYTHON" - "$@" <<'P'
import resource, subprocess, sys, time
t = time.time()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(f"peak memory {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6:.2f} GB, {time.time() - t:.1f} s in all")
P
}
rm -rf "$out/ours"
echo "agentcli loop:"
peak "$A" loop --model "$out/model" -d lastword --seed 1 --steps "$steps" --tasks 16 -n 8 --lr 2e-5 --minibatch 0 --betas .9,.999 --dtype float32 --old-logprobs file \
  --save-every 1000 --eval-every 0 --output "$out/ours" 2>"$out/ours.log"
grep -o 'step [0-9]*/.*' "$out/ours.log"
echo "TRL:"
peak "$PYTHON" "$root/bench/grpo_peer.py" "$out/model" "$out/prompts.jsonl" "$steps" "$out/trl.jsonl" 2>"$out/trl.log"
cat "$out/trl.jsonl"
