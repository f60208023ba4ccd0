#!/usr/bin/env bash
# Image files to patches, ours beside transformers' processor, one thread each, one after
# the other on each file: bench/images.sh [ROUNDS]
# PYTHON needs torch, torchvision, transformers and Pillow.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-${XDG_CACHE_HOME:-$HOME/.cache}/agentcli/peers/bin/python}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$PYTHON" bench/images_peer.py make "$tmp/files"
CGO_ENABLED=0 go build -o "$tmp/images" ./bench/images
OMP_NUM_THREADS=1 "$PYTHON" bench/images_peer.py compare "$tmp/images" "${1:-15}" "$tmp"/files/* 2>"$tmp/log" || { cat "$tmp/log" >&2; exit 1; }
