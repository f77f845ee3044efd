#!/usr/bin/env bash
# Prints the folder that holds etcd and kube-apiserver: KUBEBUILDER_ASSETS where it is set, else a download.
. "$(dirname "$0")/lib.sh"

complete() { [ -x "$1/etcd" ] && [ -x "$1/kube-apiserver" ]; }

if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
  complete "$KUBEBUILDER_ASSETS" || die "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS holds no etcd and kube-apiserver"
  echo "$KUBEBUILDER_ASSETS"
  exit
fi

# These tarballs follow Kubernetes' minor versions, with patch version 0.
version=${ENVTEST_VERSION:-${KUBERNETES_VERSION%.*}.0}
read -r os arch <<<"$(platform)"
folder=$cache/envtest/$version-$os-$arch
if ! complete "$folder"; then
  say "downloading etcd and kube-apiserver $version"
  mkdir -p "$folder"
  url=https://github.com/kubernetes-sigs/controller-tools/releases/download/envtest-$version/envtest-$version-$os-$arch.tar.gz
  archive=$cache/envtest/$version.tar.gz
  curl -fsSL --retry 3 -o "$archive" "$url" || die "can't download $url"
  expected=$(curl -fsSL --retry 3 "$url.sha512" | cut -d' ' -f1) || die "can't download $url.sha512"
  actual=$( (sha512sum "$archive" 2>/dev/null || shasum -a 512 "$archive") | cut -d' ' -f1)
  [ -n "$expected" ] && [ "$expected" = "$actual" ] || die "$url has the checksum $actual, published is $expected"
  tar -xzf "$archive" -C "$folder" --strip-components=2
  rm "$archive"
fi
complete "$folder" || die "$folder is incomplete: delete it and try again"
echo "$folder"
