#!/usr/bin/env bash
# Records `kubectl triton status --watch` in the cluster, for the docs: a first start, and a new image with a model that
# doesn't load. Deletes the sample detector first.
. "$(dirname "$0")/lib.sh"

world demo
hack/deploy.sh
cast=docs/recordings
samples=manifests/overlays/local-sample

# record NAME COMMAND…: runs the commands in a terminal of 124 by 24 characters, and shows each after a $ as a shell does.
record() {
  local name=$1 line script=
  shift
  for line in "$@"; do script+="printf '$ %s\n' $(printf %q "$line"); $line; "; done
  say "recording $cast/$name.cast"
  PATH=$root/.venv/bin:$PATH LC_ALL=C.UTF-8 TERM=xterm-256color env -u NO_COLOR \
    .venv/bin/asciinema rec --quiet --overwrite --cols 124 --rows 24 --env TERM --command "bash -c $(printf %q "$script")" "$cast/$name.cast"
}

kubectl delete tritonmodel detector --ignore-not-found --wait >&2
kubectl wait --for=delete pod --selector=tritonoperator.io/model=detector --timeout=120s >&2
record status-start "kubectl apply -k $samples" "kubectl triton status detector --watch"

# The same model repository with a package that the server's image doesn't have.
broken=$cache/tmp/broken
rm -rf "$broken"
cp -r model_images/detection "$broken"
sed -i.old 's/^import cv2$/import cv2, skimage/' "$broken/repository/postprocess/1/model.py"
image=$(TAG=v2 hack/image.sh detection "$broken")
kubectl get tritonmodel detector >&2
record status-failure \
  "kubectl patch tm detector --type=merge -p 'spec: {modelImage: {reference: ${image%@*}:v2}}'" \
  "kubectl triton status detector --watch"
kubectl apply -k "$samples" >&2
