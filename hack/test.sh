#!/usr/bin/env bash
# test.sh PART…: runs these parts of the tests, in this order; each sets up what it needs.
#   unit         pure code and golden files
#   rules        the Prometheus rules and the dashboards' queries, against a real Prometheus
#   server       the model images under a real Triton, in Docker
#   integration  the operator against a real API server
#   faults       the operator while the world around it breaks; with SOAK=1 more often and for longer
#   properties   generated bad input against a real API server; with SOAK=1 much more of it, and the pure properties too
#   e2e          the installation, in the kind cluster
. "$(dirname "$0")/lib.sh"

failed=''

# part NAME MARKER-EXPRESSION [PATH]: every test that the expression picks. One part that fails doesn't keep back the next.
part() {
  local start=$SECONDS result=passed
  say "$1 tests"
  # Without the cluster of the other scripts: a test that means one says so.
  env -u KUBECONFIG .venv/bin/pytest -q -m "$2" "${@:3}" || { result=FAILED; failed="$failed $1"; }
  say "$1 tests: $result, $((SECONDS - start)) s"
}

for name in "$@"; do
  case $name in
    unit) part unit "not rules and not server and not integration and not faults and not properties and not e2e" ;;
    rules) part rules rules ;;
    server)
      need_docker
      part server server
      ;;
    integration)
      KUBEBUILDER_ASSETS=$(hack/controlplane.sh)
      export KUBEBUILDER_ASSETS
      part integration integration
      ;;
    faults)
      KUBEBUILDER_ASSETS=$(hack/controlplane.sh)
      export KUBEBUILDER_ASSETS
      part faults faults
      ;;
    properties)
      KUBEBUILDER_ASSETS=$(hack/controlplane.sh)
      export KUBEBUILDER_ASSETS
      if [ "${SOAK:-}" = 1 ]; then part properties '' tests/properties; else part properties properties; fi
      ;;
    e2e)
      need_docker
      part e2e e2e
      ;;
    *) die "no such part of the tests: $name" ;;
  esac
done
[ -z "$failed" ] || die "failed:$failed"
