#!/usr/bin/env bash
# Run every fuzz target of the repository for some minutes each:
#
#   scripts/fuzz.sh MINUTES [PATTERN]
#
# PATTERN is a regular expression on "package Target", for example "llm" or
# "FuzzReplies". An input that fails is written into the package's testdata/fuzz by
# the Go tool; commit it with the fix. KEEP=N copies up to N small inputs that each
# target found interesting into testdata/fuzz, to be committed as its corpus.
set -uo pipefail
cd "$(dirname "$0")/.."
minutes=${1:?usage: scripts/fuzz.sh MINUTES [PATTERN]}
pattern=${2:-.}
cache=$(go env GOCACHE)/fuzz/agentcli
failed=0
targets=$(git grep --untracked -o -E '^func Fuzz[A-Za-z0-9]+' -- '*_test.go' |
  sed -E 's|^(.*)/[^/]*:func (Fuzz.*)$|\1 \2|' | sort -u | grep -E "$pattern")
while read -r package target; do
  printf '%s %s: ' "$package" "$target"
  log=$(mktemp)
  start=$(date +%s)
  if AGENTCLI_PYTHON=${AGENTCLI_PYTHON:-$HOME/.cache/agentcli/python/bin/python} CGO_ENABLED=0 \
    go test "./$package" -run '^$' -fuzz "^$target\$" -fuzztime "${minutes}m" -fuzzminimizetime 10s >"$log" 2>&1; then
    printf '%s in %ds\n' "$(grep -o 'execs: [0-9]*' "$log" | tail -1)" $(($(date +%s) - start))
  else
    failed=1
    echo FAILED
    tail -40 "$log"
  fi
  if [ -n "${KEEP:-}" ] && [ -d "$cache/$package/$target" ]; then
    mkdir -p "$package/testdata/fuzz/$target"
    find "$cache/$package/$target" -type f -size -4k -print0 | sort -z | head -z -n "$KEEP" |
      xargs -0 -r cp -n -t "$package/testdata/fuzz/$target/"
  fi
  rm -f "$log"
done <<<"$targets"
exit $failed
