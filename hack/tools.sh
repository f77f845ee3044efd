#!/usr/bin/env bash
# Sees to it that kind, kubectl, prometheus and promtool are there: the ones on PATH where their versions do, else
# downloaded from their projects' own release hosts into .cache/bin.
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

# The rules use nothing newer than 2.42.
prometheus_usable() {
  local tool version
  for tool in prometheus promtool; do
    version=$("$tool" --version 2>&1 | sed -n 's/^[a-z]*, version \([0-9][0-9.]*\).*/\1/p') || return 1
    case $version in
      '') return 1 ;;
      2.*) [ "$(minor "$version")" -ge 42 ] || return 1 ;;
    esac
  done
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
if ! prometheus_usable; then
  say "downloading prometheus $PROMETHEUS_VERSION"
  release=https://github.com/prometheus/prometheus/releases/download/$PROMETHEUS_VERSION
  folder=prometheus-${PROMETHEUS_VERSION#v}.$os-$arch
  download "$release/$folder.tar.gz" "$cache/prometheus.tar.gz" "$release/sha256sums.txt"
  tar -xzf "$cache/prometheus.tar.gz" -C "$cache/bin" --strip-components=1 "$folder/prometheus" "$folder/promtool"
  rm "$cache/prometheus.tar.gz"
fi
