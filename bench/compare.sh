#!/usr/bin/env bash
# Our speed, transformers', llama.cpp's and the machine's limits, as a markdown table.
#
#   bench/compare.sh [MODEL FOLDER] > table.md
#
# LLAMA names the output folder of bench/llama_cpp.sh; without it there is no llama.cpp.
# Runs bench/peers.py, the Go benchmarks of policy and llama.cpp's, one after the other;
# let nothing else run. PYTHON names a python with torch 2.11, transformers, gguf
# and accelerate. COUNT is the number of repeats of each (3). The raw output of
# both stays in $OUT (a new folder under /tmp).
set -euo pipefail
cd "$(dirname "$0")/.."
cache="${XDG_CACHE_HOME:-$HOME/.cache}/agentcli"
models="${1:-$cache/models}"
python="${PYTHON:-python3}"
count="${COUNT:-3}"
out="${OUT:-$(mktemp -d /tmp/agentcli-bench.XXXXXX)}"
mkdir -p "$out"

env_mk="$cache/torch.env.mk"
[ -f "$env_mk" ] || { echo "compare.sh: $env_mk is missing: run make setup" >&2; exit 1; }
"$python" -c 'import torch, transformers, gguf, accelerate' 2>/dev/null ||
  { echo "compare.sh: $python lacks torch, transformers, gguf or accelerate: name another with PYTHON=" >&2; exit 1; }
# The file is written for make; the shell takes the same assignments.
eval "$(sed 's/^export \([A-Z_]*\) := \(.*\)$/export \1="\2"/' "$env_mk")"

# Compile before anything is timed.
go test -tags libtorch -c -o "$out/policy.test" ./policy
echo "peers..." >&2
"$python" bench/peers.py "$models" --repeats "$count" ${PEERS_FLAGS:-} > "$out/peers.json"
echo "ours..." >&2
# As the program itself runs (cmd/agentcli/launch_openmp_local.go).
export GOMP_SPINCOUNT=1000
(cd policy && "$out/policy.test" -test.run '^$' -test.bench '^Benchmark(Decode|Prefill|TrainStep)$' -test.benchtime "${BENCHTIME:-2x}" -test.count "$count" -test.timeout 60m) | tee "$out/ours.txt" >&2

: >"$out/llama.txt"
if [ -n "${LLAMA:-}" ]; then
  echo "llama.cpp..." >&2
  for _ in $(seq "$count"); do # the same shapes: 7 + 64 tokens, prompts of 512
    for shape in "-npp 512 -ntg 1 -npl 1" "-npp 7 -ntg 64 -npl 1,8,32"; do
      # shellcheck disable=SC2086
      "$LLAMA/build/bin/llama-batched-bench" -m "$LLAMA/bf16.gguf" -c 4096 -b 2048 -ub 512 -t "$(nproc)" -fa on $shape 2>/dev/null |
        grep '^| *[0-9]' >>"$out/llama.txt"
    done
  done
fi

"$python" - "$out/peers.json" "$out/ours.txt" "$out/llama.txt" <<'PY'
import collections, json, re, statistics, sys

peer = json.load(open(sys.argv[1]))
ours = collections.defaultdict(list)
for line in open(sys.argv[2]):
    m = re.match(r"Benchmark(\S+?)(?:-\d+)?\s+\d+\s.*?([\d.]+(?:e[+-]?\d+)?) tok/s", line)
    if m:
        ours[m[1]].append(float(m[2]))
ours = {k: statistics.median(v) for k, v in ours.items()}
llama = collections.defaultdict(list)
for line in open(sys.argv[3]):
    f = [float(x) for x in line.split("|")[1:-1]]
    # Ours and transformers' are over the whole time of prompts and replies, so is this.
    if f[0] == 512: llama["prefill"].append(f[5])
    else: llama[f"decode batch={int(f[2])}"].append(f[2] * f[1] / f[8])
llama = {k: statistics.median(v) for k, v in llama.items()}

lim, par = peer["limits"], peer["parameters"]
weights = par["layers"] + par["head"]


def limit(dtype, row):
    """Tokens a second that no program can pass: the slower of reading the weights
    once a step and of the matrix products, at this machine's measured speeds."""
    flops = max(v for k, v in lim.items() if k.startswith(f"matmul {dtype} ")) * 1e9
    # QKᵀ and PV for one token against n/2 others on average, causal.
    attention = lambda n: 2 * 2 * par["n_layers"] * par["heads"] * par["head_dim"] * n / 2
    if row.startswith("decode"):
        batch = int(row.split("=")[1])
        memory = batch * lim["memory_GBps"] * 1e9 / (weights * (2 if dtype == "bfloat16" else 4))
        compute = flops / (2 * weights)
        return (memory, "memory") if memory < compute else (compute, "FLOPs")
    if row == "prefill":
        return flops / (2 * par["layers"] + attention(512)), "FLOPs"
    # Backward is twice the forward; the head runs on 127 of 256 positions.
    return flops / (3 * (2 * par["layers"] + attention(256) + 2 * par["head"] * 127 / 256)), "FLOPs"


print(f"{peer['model']} on {peer['cpu']}, {peer['threads']} threads; torch {peer['torch']}, transformers {peer['transformers']}. Tokens a second, medians.")
if peer.get("quick"):
    print("\n**--quick: tiny sizes, no measurement.**")
print("\n| work | dtype | ours | transformers | ours ÷ theirs | llama.cpp | ours ÷ theirs | limit | ours ÷ limit |\n|---|---|---:|---:|---:|---:|---:|---:|---:|")
names = {"prefill": "Prefill/{d}", "train": "TrainStep/{d}"}
missing = []
for dtype in ("bfloat16", "float32"):
    for row, theirs in peer[dtype].items():
        key = names.get(row, "Decode/{d}/" + row.removeprefix("decode ")).format(d=dtype)
        mine = ours.get(key)
        if mine is None:
            missing.append(key)
        top, why = limit(dtype, row)
        label = {"prefill": "prefill, 512 tokens", "train": "forward + backward, 8 × 256"}.get(row, row)
        cell = (lambda f, x: "–" if mine is None else format(x(), f))
        cpp = llama.get(row) if dtype == "bfloat16" else None
        beside = f"{cpp:.1f} | {mine / cpp:.2f}" if cpp and mine else "– | –"
        print(f"| {label} | {dtype} | {cell('.1f', lambda: mine)} | {theirs:.1f} | {cell('.2f', lambda: mine / theirs)} | {beside} | {top:.0f} ({why}) | {cell('.0%', lambda: mine / top)} |")
print("\nThe machine: memory is read at " + f"{lim['memory_GBps']:.1f} GB/s; " + "; ".join(f"{k.removesuffix('_GFLOPs')} {v:.0f} GFLOP/s" for k, v in lim.items() if k.startswith("matmul")) + ".")
print(f"Limits: decode, weights ({weights / 1e6:.1f} M) read once a step ÷ memory speed, or 2 FLOPs a weight and token ÷ the best matrix speed; prefill and training, FLOPs ÷ the best matrix speed.")
if missing:
    sys.exit("compare.sh: no benchmark result for " + ", ".join(missing))
PY
echo "raw output: $out" >&2
