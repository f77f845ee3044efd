#!/usr/bin/env bash
# Builds changed images and installs the operator in the cluster of .cache/kubeconfig, as a user would.
# Copies the dev overlays to local overlays with digests in place of the tag, so that a new build causes a rollout.
#
# Environment variables:
#   SERVER_IMAGE  the server image of the sample and of the tests: on this machine  (built from model_images/server)
. "$(dirname "$0")/lib.sh"

operator=$(hack/image.sh operator .)
if [ -n "${SERVER_IMAGE:-}" ]; then
  server=$(echo "FROM $SERVER_IMAGE" | TAG=other hack/image.sh server -)
else
  server=$(hack/image.sh server model_images/server)
fi
detection=$(hack/image.sh detection model_images/detection)
hack/cluster.sh mirror

for overlay in dev dev-sample; do
  local_=manifests/overlays/local${overlay#dev}
  mkdir -p "$local_"
  sed -e "s#localhost:5001/#$REGISTRY/#" \
    -e "s#newTag: dev#digest: ${operator#*@}#" \
    -e "s#[^ ]*/server:dev#$server#" \
    -e "s#[^ ]*/detection:dev#$detection#" \
    "manifests/overlays/$overlay/kustomization.yaml" >"$local_/kustomization.yaml"
done

say "kubectl apply -k manifests/overlays/local"
quietly apply kubectl apply -k manifests/overlays/local
quietly rollout kubectl -n triton-operator rollout status deployment/triton-operator --timeout=600s || {
  kubectl -n triton-operator get pods >&2
  kubectl -n triton-operator logs deployment/triton-operator --tail=20 >&2 || true
  exit 1
}
say "the operator is running"
