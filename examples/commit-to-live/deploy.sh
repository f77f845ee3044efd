#!/bin/sh
# Brings a model repository to a running TritonModel: validates it, builds and pushes the model image, writes the digest
# into the TritonModel, and waits until every server runs it.
#
#   MODEL=detector NAMESPACE=vision IMAGE=registry.example.com/vision/detector sh deploy.sh model_images/detection
#
# The argument is the folder with the Dockerfile of the model image; the default is the current folder.
# Variables, with their defaults in parentheses:
#   MODEL             name of the TritonModel
#   IMAGE             repository of the model image, without a tag
#   NAMESPACE         namespace of the TritonModel (that of kubectl's context)
#   TAG               tag of the image (the commit's hash, or the time)
#   REPOSITORY        the model repository, below the folder (repository)
#   BUILDER           docker, podman, or a program with the same options (docker)
#   BUILD_OPTIONS     more options of the build, separated by spaces
#   VALIDATE_OPTIONS  more options of `kubectl triton validate`, such as --server-version=24.10
#   TIMEOUT           seconds to wait for the rollout (600)
#
# Exit status: 0 if every server runs the new image; 2 if that takes longer than TIMEOUT; else 1. If a step before the
# rollout fails, the TritonModel is unchanged. If the rollout fails, the servers of the former image continue to serve.
set -eu

context=${1:-.}
: "${MODEL:?set MODEL to the name of the TritonModel}" "${IMAGE:?set IMAGE to the repository of the image, without a tag}"
BUILDER=${BUILDER:-docker}
TAG=${TAG:-$(git -C "$context" rev-parse --short=12 HEAD 2>/dev/null || date -u +%Y%m%d%H%M%S)}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
start=$(date +%s)
say() { printf '%4ds  %s\n' "$(($(date +%s) - start))" "$*"; }
fail() { say "$*" >&2; exit 1; }
in_namespace() { kubectl ${NAMESPACE:+--namespace="$NAMESPACE"} "$@"; }
# quietly COMMAND…: prints the command's output only if it fails.
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }; }

# shellcheck disable=SC2086
kubectl triton validate ${VALIDATE_OPTIONS:-} "$context/${REPOSITORY:-repository}" ||
  fail "the repository check failed; nothing was changed"
former=$(in_namespace get tritonmodel "$MODEL" -o 'jsonpath={.spec.modelImage.reference}') ||
  fail "create the TritonModel $MODEL first; nothing was changed"

say "building $IMAGE:$TAG"
# shellcheck disable=SC2086
quietly "$BUILDER" build -t "$IMAGE:$TAG" ${BUILD_OPTIONS:-} "$context" || fail "the build failed; nothing was changed"

say "pushing it"
case ${BUILDER##*/} in
  podman*) quietly "$BUILDER" push --digestfile "$work/digest" "$IMAGE:$TAG" ;;
  *) quietly "$BUILDER" push "$IMAGE:$TAG" && sed -n 's/.*digest: \(sha256:[0-9a-f]*\).*/\1/p' "$work/log" >"$work/digest" ;;
esac || fail "the push failed; nothing was changed"
digest=$(tail -n 1 "$work/digest")
[ -n "$digest" ] || fail "$BUILDER push printed no digest; nothing was changed"

say "writing $digest into tritonmodel/$MODEL"
in_namespace patch tritonmodel "$MODEL" --type=merge \
  -p "{\"spec\": {\"modelImage\": {\"reference\": \"$IMAGE@$digest\"}}}" >"$work/log" || fail "the TritonModel is unchanged"

result=0
kubectl triton status "$MODEL" ${NAMESPACE:+--namespace="$NAMESPACE"} --watch --timeout "${TIMEOUT:-600}" || result=$?
[ "$result" = 0 ] || {
  say "the rollout failed. The servers of the former image continue to serve. To go back to it:" >&2
  echo "kubectl ${NAMESPACE:+--namespace=$NAMESPACE }patch tritonmodel $MODEL --type=merge" \
    "-p '{\"spec\": {\"modelImage\": {\"reference\": \"$former\"}}}'" >&2
  exit "$result"
}
say "$IMAGE@$digest is live"
