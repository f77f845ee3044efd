# shellcheck shell=bash
# Shared functions and settings of the scripts in hack/. Source it first.
#
# Environment variables, with their defaults in parentheses:
#   WORLD                  registry or packages: source of tools and images (registry if reachable, else packages)
#   TRITON_OPERATOR_CACHE  folder that all clones share           (~/.cache/triton-operator)
#   NO_INSTALL             1: never install Debian packages
#   CLUSTER                name of the kind cluster               (triton-operator)
#   PERIODS                short or default: see hack/cluster.sh  (as they are)
#   KIND_NODE_IMAGE        node image of that cluster             (kindest/node:v1.36.3)
#   REGISTRY_PORT          port of the local registry             (5001)
#   KUBEBUILDER_ASSETS     folder with etcd and kube-apiserver    ($TRITON_OPERATOR_CACHE/control-plane)
#   PYTHON                 interpreter for hack/world and .venv   (the oldest on PATH, 3.11 or later)
set -euo pipefail

# What is generated, checked and tested is the same for every caller (hack/environment.py does this for Python).
umask 022
while IFS= read -r name; do
  case $name in
    '' | '#'*) ;;
    *'*') for set_ in $(compgen -e "${name%\*}"); do unset "$set_"; done ;;
    *) unset "$name" ;;
  esac
done <"$(dirname "${BASH_SOURCE[0]}")/environment.txt"
export LC_ALL=C.UTF-8 TZ=UTC
[ "$(uname)" != Darwin ] || export LC_ALL=en_US.UTF-8
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
# A proxy is for downloads, not for this machine.
local_names=localhost,127.0.0.1,::1
case ${NO_PROXY:-} in *"$local_names") ;; *) export NO_PROXY=${NO_PROXY:+$NO_PROXY,}$local_names ;; esac
case ${no_proxy:-} in *"$local_names") ;; *) export no_proxy=${no_proxy:+$no_proxy,}$local_names ;; esac

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
# This name works on this machine and inside the cluster.
export REGISTRY=localhost:$REGISTRY_PORT
# A separate file: the scripts never read or write the user's kubeconfig.
export KUBECONFIG=$cache/kubeconfig
export KUBEBUILDER_ASSETS=${KUBEBUILDER_ASSETS:-$shared/control-plane}
# In the shared folder, so that `make purge` removes pip's cache too.
export PIP_CACHE_DIR=${PIP_CACHE_DIR:-$shared/pip}
# Keep the caches of other programs in the clone: kubectl's discovery, ONNX Runtime's and pytest's folders.
export TRITON_OPERATOR_CACHE=$shared
export KUBECACHEDIR=$cache/kube XDG_CACHE_HOME=$cache/xdg PYTEST_DEBUG_TEMPROOT=$cache/tmp
mkdir -p "$cache/tmp"
export PATH=$shared/bin:$PATH

say() { printf '%s  %s\n' "$(date +%H:%M:%S)" "$*" >&2; }
die() { say "$*"; exit 1; }

# quietly NAME COMMAND…: runs the command with its output in .cache/log/NAME, and prints the output if it fails.
quietly() {
  local log=$cache/log/$1
  mkdir -p "$cache/log"
  shift
  "$@" >"$log" 2>&1 || { say "failed: $*"; tail -n 40 "$log" >&2; return 1; }
}

# digest_of FILE…: prints one SHA-256 over the files' names and contents.
digest_of() { sha256 "$@" | sha256 | cut -d' ' -f1; }
sha256() { if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }

# python: prints $PYTHON, else the oldest interpreter on PATH that is 3.11 or later, so that code that runs here runs with
# every supported version. Prefers an interpreter that can create a venv (Debian has this in a separate package).
python() {
  local candidate found
  found=$(
    for candidate in $(if [ -n "${PYTHON:-}" ]; then echo "$PYTHON"; else type -aP python3 python3.1{1..4} | sort -u; fi); do
      "$candidate" -c 'import sys, importlib.util as u
if sys.version_info >= (3, 11): print(int(not u.find_spec("ensurepip")), "%d.%03d.%03d" % sys.version_info[:3], sys.argv[1])' \
        "$candidate" 2>/dev/null || true
    done | sort | head -n 1
  )
  [ -n "$found" ] || die "no Python 3.11 or later on PATH; install one, or set PYTHON=/path/to/python3"
  echo "${found##* }"
}

# world GOAL…: installs or builds the tools, images and the cluster that these goals need.
# Go may get modules by git, from a mirror in the user's settings.
world() { env -u GIT_CONFIG_GLOBAL -u GIT_CONFIG_NOSYSTEM PYTHONDONTWRITEBYTECODE=1 "$(python)" -m hack.world up "$@"; }

# packages_world: whether images and tools are built from package registries on this machine.
packages_world() { [ "${WORLD:-$(cat "$shared/source" 2>/dev/null)}" = packages ]; }
# Debian's Docker has no BuildKit plugin, so use the engine's builder.
if packages_world; then export DOCKER_BUILDKIT=0; fi
# Without this variable, `docker build` uses Docker's default builder. Other builders keep their images to themselves.
unset BUILDX_BUILDER

# remember KIND NAME: records an object outside the clone, for `make purge` to remove.
remember() { grep -qxF "$1 $2" "$shared/ledger" 2>/dev/null || { mkdir -p "$shared" && echo "$1 $2" >>"$shared/ledger"; }; }

need_docker() {
  command -v docker >/dev/null || die "docker isn't on PATH; install Docker: https://docs.docker.com/get-docker"
  docker info >/dev/null 2>&1 || die "Docker doesn't answer; check that its service runs and that you may use it"
}
