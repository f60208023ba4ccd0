#!/usr/bin/env bash
# Decoding and prompts of other architectures than SmolLM2's, each beside the limit of this machine:
# Qwen3-0.6B's shape, a small mixture of experts, and Qwen3.5-0.8B's shape with a smaller vocabulary.
# All have random weights and the tokenizer of SmolLM2. Prints a table of medians.
#
#   bench/architectures.sh FOLDER [smollm2 qwen3 moe qwen35]
#
# COUNT is the number of runs of each (5), BATCHES those of decoding (1,8,32). PYTHON: one with torch 2.11
# and transformers. The models take 5 GB. Let nothing else run.
set -euo pipefail
out=$(mkdir -p "$1" && cd "$1" && pwd); shift
[ $# -gt 0 ] || set -- smollm2 qwen3 moe qwen35
root=$(cd "$(dirname "$0")/.." && pwd)
A=${AGENTCLI:-$root/bin/agentcli}
PYTHON=${PYTHON:-python3}
cd "$root"
models="${XDG_CACHE_HOME:-$HOME/.cache}/agentcli/models"
[ -f "$out/smollm2/config.json" ] || "$A" model convert --dtype bf16 "$models"/SmolLM2-135M-Instruct.Q4_1.gguf "$out/smollm2"
mkdir -p "$out/config"
cp "$out"/smollm2/tokenizer*.json "$out/config/"
for name in "$@"; do
  [ -f "$out/$name/config.json" ] && continue
  "$PYTHON" - "$name" "$out/config/config.json" <<'P'
import json, sys
name, path = sys.argv[1:]
same = {"vocab_size": 49152, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "hidden_act": "silu",
        "attention_bias": False, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2, "initializer_range": .02, "dtype": "bfloat16"}
rope = {"rope_theta": 1e6, "rope_type": "default"}
shapes = {
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024, "intermediate_size": 3072,
              "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "rope_parameters": rope},
    "moe": {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 1024, "intermediate_size": 3072,
            "moe_intermediate_size": 512, "num_experts": 32, "num_experts_per_tok": 4, "norm_topk_prob": True, "decoder_sparse_step": 1,
            "mlp_only_layers": [], "num_hidden_layers": 12, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64,
            "rope_parameters": rope},
    "qwen35": {"model_type": "qwen3_5_text", "architectures": ["Qwen3_5ForCausalLM"], "hidden_size": 1024, "intermediate_size": 3584,
               "num_hidden_layers": 24, "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 6, "num_attention_heads": 8,
               "num_key_value_heads": 2, "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": 16,
               "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
               "rope_parameters": rope | {"rope_theta": 1e7, "partial_rotary_factor": .25, "mrope_interleaved": True,
                                          "mrope_section": [11, 11, 10]}},
}
json.dump(same | shapes[name], open(path, "w"), indent=1)
P
  rm -rf "${out:?}/$name"
  "$A" model init --config "$out/config/config.json" --seed 1 -o "$out/$name"
done
go test -tags libtorch -c -o "$out/policy.test" ./policy
export GOMP_SPINCOUNT=1000 AGENTCLI_BENCH_BATCHES=${BATCHES:-1,8,32} AGENTCLI_BENCH_LENGTH=512
for name in "$@"; do
  (cd policy && AGENTCLI_BENCH_MODEL="$out/$name" "$out/policy.test" -test.run '^$' -test.bench 'Shape/(decode|prefill)/(batch|length=512$)' \
    -test.benchtime "${COUNT:-5}x") | tee "$out/$name.txt" >&2
done
"$PYTHON" - "$out" "$@" <<'P'
import json, os, re, sys
sys.path.insert(0, "bench")
import peers
out, names = sys.argv[1], sys.argv[2:]
lim = peers.limits(5, False)
memory = lim["memory_GBps"] * 1e9
flops = max(v for k, v in lim.items() if k.startswith("matmul bfloat16")) * 1e9
print(f"memory {memory / 1e9:.1f} GB/s, matrices {flops / 1e9:.0f} GFLOP/s in bfloat16", file=sys.stderr)


def numbers(folder):
    """Weights a token is multiplied with, by whether all tokens take the same; and experts, active experts."""
    c = json.load(open(folder + "/config.json"))
    with open(next(folder + "/" + f for f in os.listdir(folder) if f.endswith(".safetensors")), "rb") as f:
        head = json.loads(f.read(int.from_bytes(f.read(8), "little")))
    dense = experts = 0
    for name, t in head.items():
        if name == "__metadata__" or len(t["shape"]) < 2: continue
        n = 1
        for d in t["shape"]: n *= d
        if ".experts." in name: experts += n
        elif "embed_tokens" not in name or c.get("tie_word_embeddings"): dense += n
    return c, dense, experts


print("| model | work | tok/s | limit | share |\n|---|---|---:|---:|---:|")
for name in names:
    c, dense, experts = numbers(f"{out}/{name}")
    e, k = c.get("num_experts", 1), c.get("num_experts_per_tok", 1)
    body = dense - c["vocab_size"] * c["hidden_size"]
    for line in open(f"{out}/{name}.txt"):
        m = re.match(r"BenchmarkShape/(decode/batch|prefill/length)=(\d+)\S*\s.*?([\d.]+) tok/s", line)
        if not m: continue
        n, rate = int(m[2]), float(m[3])
        if m[1].startswith("decode"):
            used = experts * (1 - (1 - k / e) ** n) if experts else 0  # of n tokens, each expert as likely
            top, why = min((n * memory / 2 / (dense + used), "memory"), (flops / 2 / (dense + experts * k / e), "FLOPs"))
            print(f"| {name} | decode, batch {n} | {rate:.1f} | {top:.0f} ({why}) | {rate / top:.0%} |")
        else:
            top = flops / (2 * (body + experts * k / e))
            print(f"| {name} | prefill, {n} tokens | {rate:.0f} | {top:.0f} (FLOPs) | {rate / top:.0%} |")
P
