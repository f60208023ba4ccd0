#!/usr/bin/env bash
# Fail when a function cannot be reached from any program of this repository: the command,
# the examples, the benchmarks, the scripts. A call in a test does not count. A function is
# dead when it is unreachable in each of the two builds that has its file.
# TAGS are those of the full build; it needs CGO_CXXFLAGS and CGO_LDFLAGS, as make sets
# them.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
TAGS=${TAGS:--tags libtorch}
programs=(./cmd/... ./examples/... ./bench/... ./scripts/...)

# Unreachable for a reason.
allowed() {
  cat <<'LIST'
app/retrieval/serve.go: Open              # an index for Go programs; tests of the command serve one in their process
examples/guess/reward.go: Few.Name        # shows what a rewards.Reward has; its program prints scores only
internal/torch/torch.go: Live             # tests of policy count tensors too
internal/torch/torch.go: Arena            # tests switch the arena; a test file cannot call C
internal/torch/torch.go: UseKernels       # tests switch the kernels; a test file cannot call C
LIST
}

unreachable() { # cgo, tags → "file: function"
  CGO_ENABLED=$1 $GO tool -modfile=tools.mod deadcode "${@:2}" \
    -f '{{range .Funcs}}{{.Position.File}}: {{.Name}}{{"\n"}}{{end}}' "${programs[@]}" | sed '/^$/d' | sort
}
files() { # cgo, tags → files of the build
  CGO_ENABLED=$1 $GO list "${@:2}" -f '{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{range .CgoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}' ./... |
    sed "s|^$PWD/||" | sort
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unreachable 0 > "$tmp/lite.dead"
# deadcode lists packages without their embedded files, for which go's cache has no build of our
# C++. It needs no objects: a compiler that makes empty ones saves minutes.
# Unquoted: -tags and its value are two words.
CXX=$PWD/scripts/empty_cxx.sh unreachable 1 $TAGS > "$tmp/full.dead"
files 0 > "$tmp/lite.files"
files 1 $TAGS > "$tmp/full.files"
# Reported by one build, and by the other one or not in it.
{
  comm -12 "$tmp/lite.dead" "$tmp/full.dead"
  comm -23 "$tmp/lite.dead" "$tmp/full.dead" | grep -vFf <(sed 's/$/: /' "$tmp/full.files") || true
  comm -13 "$tmp/lite.dead" "$tmp/full.dead" | grep -vFf <(sed 's/$/: /' "$tmp/lite.files") || true
} | sort > "$tmp/dead"
allowed | sed 's/ *#.*//' | sort > "$tmp/allowed"
status=0
if comm -23 "$tmp/dead" "$tmp/allowed" | grep .; then
  echo "unreachable from every program: delete it, or move it to where it is used" >&2
  status=1
fi
if comm -13 "$tmp/dead" "$tmp/allowed" | grep .; then
  echo "reached by a program: take it from the list of scripts/deadcode.sh" >&2
  status=1
fi
exit $status
