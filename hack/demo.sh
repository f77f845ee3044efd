#!/usr/bin/env bash
# Creates a cluster, installs the operator, serves a detector, and detects the objects in a picture.
. "$(dirname "$0")/lib.sh"

start=$SECONDS
world demo
hack/deploy.sh

say "kubectl apply -k manifests/overlays/local-sample"
kubectl apply -k manifests/overlays/local-sample >&2
if ! kubectl wait --for=condition=Ready tritonmodel/detector --timeout=600s >&2; then
  kubectl get tritonmodel detector -o jsonpath='{range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}' >&2
  exit 1
fi
kubectl get tritonmodel detector >&2

port=$(.venv/bin/python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
kubectl port-forward service/detector "$port:8000" >"$cache/log/port-forward" 2>&1 &
forward=$!
trap 'kill $forward 2>/dev/null || true' EXIT
tries=50
until curl -fs -o /dev/null "http://localhost:$port/v2/health/live"; do
  [ $((tries -= 1)) -gt 0 ] || die "the server can't be reached; kubectl port-forward printed: $(cat "$cache/log/port-forward")"
  sleep 0.2
done
say "sending a picture to the model \"detection\""
.venv/bin/python model_images/detection/client/detect.py --url "localhost:$port" "${PICTURE:-model_images/detection/samples/square.jpg}"
say "the demo took $((SECONDS - start)) s; next, in this folder:"
# kubectl may be only in this folder, which isn't on the user's PATH.
cat >&2 <<NEXT
  export KUBECONFIG=\$PWD/.cache/kubeconfig PATH=\$PWD/.venv/bin:$shared/bin:\$PATH
  kubectl triton status detector
NEXT
