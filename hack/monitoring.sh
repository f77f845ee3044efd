#!/usr/bin/env bash
# monitoring.sh up: installs prometheus-operator, Prometheus, Alertmanager with a receiver, prometheus-adapter and the
# Triton operator's manifests for them in the cluster of .cache/kubeconfig. Skips what is installed.
# monitoring.sh down: removes them.
. "$(dirname "$0")/lib.sh"

vendored=tests/support/vendor/prometheus-operator.yaml
installed() { kubectl -n monitoring get configmap hack-monitoring -o 'jsonpath={.data.digest}' 2>/dev/null; }

# Deleting the operator's install.yaml deletes its ServiceMonitor, too.
complete() { kubectl get -f "$cache/monitoring.yaml" -o name >/dev/null 2>&1; }

wait_for() { kubectl wait --timeout="${WAIT:-240s}" "$@"; }

# prometheus-operator creates pods some time after the Prometheus or Alertmanager object.
ready() {
  kubectl -n monitoring get deployment -o name | xargs -n 1 kubectl -n monitoring rollout status --timeout="${WAIT:-240s}" &&
    wait_for -n monitoring --for=condition=Available prometheus,alertmanager --all &&
    wait_for --for=condition=Available apiservice v1beta1.custom.metrics.k8s.io v1beta2.custom.metrics.k8s.io
}

up() {
  local wanted
  hack/cluster.sh mirror
  kubectl kustomize hack/monitoring >"$cache/monitoring.yaml"
  wanted=$(digest_of "$vendored" "$cache/monitoring.yaml")
  if [ "$(installed)" != "$wanted" ] || ! complete; then
    say "installing prometheus-operator, Prometheus, Alertmanager and prometheus-adapter"
    quietly monitoring-operator kubectl apply --server-side --force-conflicts -f "$vendored"
    quietly monitoring-crds wait_for --for=condition=Established crd --all
    # The adapter doesn't start without the CRD. The operator's installation applies these first too.
    quietly monitoring-first kubectl apply -f crds/tritonoperator.io_tritonmodels.yaml -f manifests/operator/namespace.yaml
    quietly monitoring-apply kubectl apply --server-side --force-conflicts -f "$cache/monitoring.yaml"
  fi
  quietly monitoring-ready ready || { kubectl -n monitoring get pods >&2; exit 1; }
  kubectl -n monitoring create configmap hack-monitoring --from-literal="digest=$wanted" --dry-run=client -o yaml |
    quietly monitoring-stamp kubectl apply -f -
  say "monitoring is ready"
}

down() {
  say "removing monitoring"
  kubectl delete --ignore-not-found --wait=false -f "$cache/monitoring.yaml" >&2 || true
  kubectl delete --ignore-not-found -f "$vendored" >&2
}

case ${1:-} in
  up | down) "$1" ;;
  *) die "usage: $0 up|down" ;;
esac
