#!/usr/bin/env bash
# test.sh PART…: runs these parts of the tests, in this order; each sets up what it needs.
#   unit         pure code and golden files
#   server       the model images under a real Triton, in Docker
#   integration  the operator against a real API server
#   e2e          the installation, in the kind cluster
. "$(dirname "$0")/lib.sh"

# part NAME MARKER-EXPRESSION: every test that the expression picks.
part() {
  local start=$SECONDS status=0
  say "$1 tests"
  .venv/bin/pytest -q -m "$2" || status=$?
  say "$1 tests: $([ $status = 0 ] && echo passed || echo FAILED), $((SECONDS - start)) s"
  return $status
}

for name in "$@"; do
  case $name in
    unit)
      part unit "not server and not integration and not e2e" ;;
    server)
      need_docker
      part server server ;;
    integration)
      assets=$(hack/controlplane.sh)
      KUBEBUILDER_ASSETS=$assets part integration integration ;;
    e2e)
      need_docker
      part e2e e2e ;;
    *) die "no such part of the tests: $name" ;;
  esac
done
