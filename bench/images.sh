#!/usr/bin/env bash
# Image files to patches, ours beside transformers' processor, one thread each, one after
# the other on each file: bench/images.sh [ROUNDS]
# PYTHON needs torch, torchvision, transformers and Pillow.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-9}
PYTHON=${PYTHON:-${XDG_CACHE_HOME:-$HOME/.cache}/agentcli/peers/bin/python}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$PYTHON" bench/images_peer.py make "$tmp/files"
CGO_ENABLED=0 go build -o "$tmp/images" ./bench/images
"$tmp/images" "$rounds" "$tmp"/files/* > "$tmp/ours"
OMP_NUM_THREADS=1 "$PYTHON" bench/images_peer.py time "$rounds" "$tmp"/files/* > "$tmp/theirs" 2>"$tmp/log" || { cat "$tmp/log" >&2; exit 1; }
"$PYTHON" - "$tmp/ours" "$tmp/theirs" <<'PY'
import json, os, sys
ours, theirs = ([json.loads(l) for l in open(f)] for f in sys.argv[1:])
print("| file | agentcli, ms (decode, resize, patches) | transformers, ms | ratio |\n|---|---|---|---|")
for a, b in zip(ours, theirs):
    print(f"| {os.path.basename(a['file'])} | {a['ms']:.1f} ({a['decode_ms']:.1f}, {a['resize_ms']:.1f}, {a['patches_ms']:.1f}) "
          f"| {b['ms']:.1f} | {a['ms'] / b['ms']:.2f} |")
PY
