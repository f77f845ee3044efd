#!/usr/bin/env bash
# Sees to it that kind and kubectl are there: the ones on PATH where their versions do, else downloaded
# from their projects' own release hosts into .cache/bin.
. "$(dirname "$0")/lib.sh"

read -r os arch <<<"$(platform)"

# minor VERSION: 1.36.3 → 36
minor() { local rest=${1#*.}; echo "${rest%%.*}"; }

kind_usable() {
  local version
  version=$(kind version -q 2>/dev/null) && [ "$(minor "$version")" -ge "$(minor "$KIND_VERSION")" ]
}

# kubectl talks to API servers one minor version away.
kubectl_usable() {
  local version distance
  version=$(kubectl version --client 2>/dev/null | sed -n 's/^Client Version: v//p') && [ -n "$version" ] || return 1
  distance=$(($(minor "$version") - $(minor "$KUBERNETES_VERSION")))
  [ "${distance#-}" -le 1 ]
}

if ! kind_usable; then
  say "downloading kind $KIND_VERSION"
  url=https://github.com/kubernetes-sigs/kind/releases/download/$KIND_VERSION/kind-$os-$arch
  download "$url" "$cache/bin/kind" "$url.sha256sum"
  chmod +x "$cache/bin/kind"
fi
if ! kubectl_usable; then
  say "downloading kubectl $KUBERNETES_VERSION"
  url=https://dl.k8s.io/release/$KUBERNETES_VERSION/bin/$os/$arch/kubectl
  download "$url" "$cache/bin/kubectl" "$url.sha256"
  chmod +x "$cache/bin/kubectl"
fi
