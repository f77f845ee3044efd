# shellcheck shell=bash
# What the scripts here share; source it first.
#
# Everything that differs from machine to machine comes from the environment:
#   WORLD                  registry or packages: where tools and images come from (whatever can be reached)
#   TRITON_OPERATOR_CACHE  folder that all clones share           (~/.cache/triton-operator)
#   NO_INSTALL             1: installs no Debian package
#   CLUSTER                name of the kind cluster               (triton-operator)
#   KIND_NODE_IMAGE        Kubernetes of that cluster             (kindest/node:v1.36.3)
#   REGISTRY_PORT          where the local registry listens       (5001)
#   KUBEBUILDER_ASSETS     folder with etcd and kube-apiserver    (control-plane in that folder)
#   PYTHON                 interpreter for hack/world and .venv   (the oldest on PATH, 3.11 or later)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
cache=$root/.cache
mkdir -p "$cache/log"
shared=${TRITON_OPERATOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/triton-operator}

export CLUSTER=${CLUSTER:-triton-operator}
while IFS='=' read -r name value; do
  case $name in '#'*) ;; *) export "$name=${!name:-$value}" ;; esac
done <hack/versions.env
export KIND_NODE_IMAGE=${KIND_NODE_IMAGE:-kindest/node:$KUBERNETES_VERSION}
export REGISTRY_NAME=${REGISTRY_NAME:-triton-operator-registry}
export REGISTRY_PORT=${REGISTRY_PORT:-5001}
# The same name on this machine and inside the cluster.
export REGISTRY=localhost:$REGISTRY_PORT
# A file of its own: the user's kubeconfig is never read or written.
export KUBECONFIG=$cache/kubeconfig
export KUBEBUILDER_ASSETS=${KUBEBUILDER_ASSETS:-$shared/control-plane}
# `make purge` removes what pip keeps, too.
export PIP_CACHE_DIR=${PIP_CACHE_DIR:-$shared/pip}
# What other programs keep outside the clone stays in it: kubectl's discovery, ONNX Runtime's, pytest's folders.
export TRITON_OPERATOR_CACHE=$shared
export KUBECACHEDIR=$cache/kube XDG_CACHE_HOME=$cache/xdg PYTEST_DEBUG_TEMPROOT=$cache/tmp
mkdir -p "$cache/tmp"
export PATH=$shared/bin:$PATH

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

# python: $PYTHON, else the oldest interpreter on PATH from 3.11 on, so that what runs here runs everywhere. One that can
# make a venv comes before one that can't (Debian has that in a package of its own).
python() {
  local candidate found
  found=$(
    for candidate in $(if [ -n "${PYTHON:-}" ]; then echo "$PYTHON"; else type -aP python3 python3.1{1..4} | sort -u; fi); do
      "$candidate" -c 'import sys, importlib.util as u
if sys.version_info >= (3, 11): print(int(not u.find_spec("ensurepip")), "%d.%03d.%03d" % sys.version_info[:3], sys.argv[1])' \
        "$candidate" 2>/dev/null || true
    done | sort | head -n 1
  )
  [ -n "$found" ] || die "Python 3.11 or later is needed; say which with PYTHON=/path/to/python3"
  echo "${found##* }"
}

# world GOAL…: the tools, images and the cluster that these goals stand on.
world() { PYTHONDONTWRITEBYTECODE=1 "$(python)" -m hack.world up "$@"; }

# packages_world: whether everything is built from package registries here.
packages_world() { [ "${WORLD:-$(cat "$shared/source" 2>/dev/null)}" = packages ]; }
# Debian's Docker comes without BuildKit's plugin; the engine has a builder of its own.
if packages_world; then export DOCKER_BUILDKIT=0; fi

# remember KIND NAME: something outside the clone that `make purge` shall remove.
remember() { grep -qxF "$1 $2" "$shared/ledger" 2>/dev/null || { mkdir -p "$shared" && echo "$1 $2" >>"$shared/ledger"; }; }

need_docker() {
  command -v docker >/dev/null || die "Docker is needed: https://docs.docker.com/get-docker"
  docker info >/dev/null 2>&1 || die "Docker doesn't answer: is its service running, and may you use it?"
}
