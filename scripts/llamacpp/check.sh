#!/usr/bin/env bash
# Does llama.cpp read the GGUFs that model convert writes, with equal greedy tokens?
#
#   AGENTCLI_PYTHON=… scripts/llamacpp/check.sh MODEL.gguf
#
# llama.cpp is that of the npm package node-llama-cpp (ready-made, for the CPU). The
# Python has torch, transformers and gguf: transformers on the same GGUF, in float32, is
# the other side, or on the folder for the families whose GGUFs it does not read. MODEL is a
# small Llama, whose tokenizer random models of the other families get too. A line for each file: the number of equal tokens of
# 32, and how many of llama.cpp's are the first choice of transformers behind the same text.
# llama.cpp multiplies blocks by activations that it rounds. With LLAMA, the folder of bench/llama_cpp.sh, its llama-quantize also
# makes float32 of them, and llama.cpp computes with that: equal tokens show that it reads the same numbers.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
model=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
work=${WORK:-$(mktemp -d)}
mkdir -p "$work/npm"
(cd "$root" && CGO_ENABLED=0 go build -o "$work/agentcli" ./cmd/agentcli)
cd "$work/npm"
[ -d node_modules/node-llama-cpp ] || {
  npm init -y >/dev/null 2>&1
  NODE_LLAMA_CPP_SKIP_DOWNLOAD=true npm install --silent --no-audit --no-fund --omit=optional node-llama-cpp@3.22.1
  npm install --silent --no-audit --no-fund --ignore-scripts @node-llama-cpp/linux-x64@3.22.1
}
cp "$root/scripts/llamacpp/greedy.mjs" .
cd "$work"
[ -d llama ] || ./agentcli model convert --dtype bf16 "$model" llama
"${AGENTCLI_PYTHON:-python3}" "$root/scripts/llamacpp/check.py" random
for m in llama qwen2 qwen3 qwen3_moe gemma3_text phi3 smollm3 olmo2 mistral granite; do
  case $m in llama | qwen2 | qwen3) types="f32 bf16 q8_0 q4_k" ;; *) types=f32 ;; esac
  for t in ${TYPES:-$types}; do
    ./agentcli model convert --dtype $t $m "$m.$t.gguf" 2>/dev/null
    (cd npm && node greedy.mjs "The capital of France is" 32 "$work/$m.$t.gguf") >"$m.$t.json" 2>/dev/null
    "${AGENTCLI_PYTHON:-python3}" "$root/scripts/llamacpp/check.py" compare $m $t 2>/dev/null
    case ${LLAMA:+$t} in q8_0 | q4_k)
      "$LLAMA/build/bin/llama-quantize" --allow-requantize "$m.$t.gguf" "$m.f32.gguf" F32 >quantize.log 2>&1
      (cd npm && node greedy.mjs "The capital of France is" 32 "$work/$m.f32.gguf") >"$m.$t.json" 2>/dev/null
      echo -n "read by llama.cpp: "
      "${AGENTCLI_PYTHON:-python3}" "$root/scripts/llamacpp/check.py" compare $m $t 2>/dev/null
      rm "$m.f32.gguf" ;;
    esac
    rm "$m.$t.gguf"
  done
done
