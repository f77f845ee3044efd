# shellcheck shell=bash
# What the scripts here share; source it first.
#
# Everything that differs from machine to machine comes from the environment:
#   CLUSTER             name of the kind cluster               (triton-operator)
#   KIND_NODE_IMAGE     Kubernetes of that cluster             (kindest/node:v1.36.3)
#   REGISTRY_PORT       where the local registry listens       (5001)
#   KUBEBUILDER_ASSETS  folder with etcd and kube-apiserver    (downloaded)
#   PYTHON              interpreter that the venv is made with (the newest on PATH, 3.11 or later)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
cache=$root/.cache
mkdir -p "$cache/bin"

export CLUSTER=${CLUSTER:-triton-operator}
export KUBERNETES_VERSION=${KUBERNETES_VERSION:-v1.36.3}
export KIND_NODE_IMAGE=${KIND_NODE_IMAGE:-kindest/node:$KUBERNETES_VERSION}
export KIND_VERSION=${KIND_VERSION:-v0.33.0}
export PROMETHEUS_VERSION=${PROMETHEUS_VERSION:-v2.53.3}
export REGISTRY_NAME=${REGISTRY_NAME:-triton-operator-registry}
export REGISTRY_PORT=${REGISTRY_PORT:-5001}
# The same name on this machine and inside the cluster.
export REGISTRY=localhost:$REGISTRY_PORT
# A file of its own: the user's kubeconfig is never read or written.
export KUBECONFIG=$cache/kubeconfig
export PATH=$cache/bin:$PATH

say() { printf '%s  %s\n' "$(date +%H:%M:%S)" "$*" >&2; }
die() { say "$*"; exit 1; }

# quietly NAME COMMAND…: runs the command with its output in .cache/log/NAME, shown only where it fails.
quietly() {
  local log=$cache/log/$1
  mkdir -p "$cache/log"
  shift
  "$@" >"$log" 2>&1 || { say "failed: $*"; tail -n 40 "$log" >&2; return 1; }
}

# digest_of FILE…: one SHA-256 over names and contents.
digest_of() { sha256 "$@" | sha256 | cut -d' ' -f1; }
sha256() { if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }

# download URL FILE SUMS-URL: only a file whose SHA-256 is the published one comes into being. The sums are those of
# that file alone, or of many, by name.
download() {
  local url=$1 file=$2 sums=$3 expected actual
  command -v curl >/dev/null || die "curl is needed to download $url"
  curl -fsSL --retry 3 -o "$file.part" "$url" || die "can't download $url"
  expected=$(curl -fsSL --retry 3 "$sums" | sum_of "${url##*/}") || die "can't download $sums"
  actual=$(sha256 "$file.part" | cut -d' ' -f1)
  [ -n "$expected" ] && [ "$expected" = "$actual" ] || die "$url has the checksum $actual, published is $expected"
  mv "$file.part" "$file"
}

# sum_of NAME: the checksum of that file, from the list that comes in; a list of one need not name it.
sum_of() {
  awk -v name="$1" '$2 == name || $2 == "*" name { named = $1 } { only = $1 } END { print (named ? named : (NR == 1 ? only : "")) }'
}

# platform: linux amd64, as release files name it.
platform() {
  local arch
  case $(uname -m) in
    x86_64) arch=amd64 ;;
    aarch64 | arm64) arch=arm64 ;;
    *) die "no tools are published for the machine type $(uname -m)" ;;
  esac
  printf '%s %s' "$(uname -s | tr '[:upper:]' '[:lower:]')" "$arch"
}

need_docker() {
  command -v docker >/dev/null || die "Docker is needed: https://docs.docker.com/get-docker"
  docker info >/dev/null 2>&1 || die "Docker doesn't answer: is its service running, and may you use it?"
}
