#!/usr/bin/env bash
# What our kernels of the gated delta rule give. The rule alone, by the kernels of each instruction
# set and by libtorch's operations, from one program; then four layers of Qwen3.5-0.8B by the programs
# of two commits in turn: this tree, and BEFORE. Prints tables of
# medians: milliseconds of a processor's time, and tokens a second of it, on one thread.
#
#   bench/recurrent.sh FOLDER [BEFORE [COUNT]]        (default: the rule alone; 5 runs)
set -euo pipefail
out=$(mkdir -p "$1" && cd "$1" && pwd); before=${2:-}; count=${3:-5}
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
go test -tags libtorch -c -o "$out/torch.test" ./internal/torch
(cd internal/torch && "$out/torch.test" -test.run '^$' -test.bench GatedDelta -test.benchtime 1s -test.count "$count") | tee "$out/rule.txt"
# BenchmarkX/WORK/NAME[-CPUS] … VALUE UNIT …  →  WORK<tab>NAME<tab>VALUE
awk '/cpu-ms\/op/ { split($1, n, "/"); sub(/-[0-9]+$/, "", n[3])
  for (i = 2; i <= NF; i++) if ($i == "cpu-ms/op") print n[2] "\t" n[3] "\t" $(i - 1) }' "$out/rule.txt" >"$out/rule.tsv"
if [ -n "$before" ]; then
  rm -rf "$out/before"
  git worktree prune
  git worktree add --detach "$out/before" "$before"
  trap 'git worktree remove --force "$out/before"' EXIT
  cp policy/recurrent_bench_test.go policy/families_test.go "$out/before/policy/"
  go test -tags libtorch -c -o "$out/now.test" ./policy
  (cd "$out/before" && go test -tags libtorch -c -o "$out/before.test" ./policy)
  : >"$out/model.tsv"
  for _ in $(seq "$count"); do
    for name in before now; do
      (cd policy && "$out/$name.test" -test.run '^$' -test.bench 'Recurrent$' -test.benchtime 1x) |
        awk -v name=$name '/tok\/cpu-s/ { sub(/^BenchmarkRecurrent\//, "", $1); sub(/-[0-9]+$/, "", $1)
          for (i = 2; i <= NF; i++) if ($i == "tok/cpu-s") print $1 "\t" name "\t" $(i - 1) }' | tee -a "$out/model.tsv"
    done
  done
fi
for table in rule model; do
  [ -s "$out/$table.tsv" ] || continue
  echo
  LC_ALL=C sort -t "$(printf '\t')" -k1,1 -k2,2 -k3,3g "$out/$table.tsv" | awk -F '\t' '
    { key = $1 FS $2; n[key]++; v[key, n[key]] = $3; if (!($1 in seen)) { seen[$1]; order[++works] = $1 }
      if (!($2 in names)) { names[$2]; columns[++cols] = $2 } }
    END {
      printf "| work |"; for (c = 1; c <= cols; c++) printf " %s |", columns[c]; print ""
      for (w = 1; w <= works; w++) {
        printf "| %s |", order[w]
        for (c = 1; c <= cols; c++) { key = order[w] FS columns[c]; printf " %s |", n[key] ? v[key, int((n[key] + 1) / 2)] : "–" }
        print ""
      }
    }'
done
