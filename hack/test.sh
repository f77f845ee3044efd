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

failed=()
reports=$cache/reports

# part NAME MARKER-EXPRESSION [OPTION…]: every test that the expression picks. One part that fails doesn't keep back the
# next.
part() {
  local start=$SECONDS result=passed report=$reports/$1
  say "$1 tests"
  rm -f "$report"
  # Without the cluster of the other scripts: a test that means one says so.
  env -u KUBECONFIG .venv/bin/pytest -m "$2" --durations=10 --durations-min=2 --junitxml="$report" "${@:3}" ||
    { result=FAILED; failed+=("$1"); }
  say "$1 tests: $result, $((SECONDS - start)) s"
}

# Each of the processes has servers of its own and takes whole files: a test never meets one of another process. More of
# them than two cores carry would make those late that have to be in time; where most of the time is waiting, that is one
# more.
beside=(-n "${TEST_WORKERS:-2}" --dist loadfile)
waiting=(-n "${TEST_WORKERS:-3}" --dist loadfile)

world "$@"
for name in "$@"; do
  case $name in
    unit) part unit "not rules and not server and not integration and not faults and not properties and not e2e" -q "${beside[@]}" ;;
    rules) part rules rules -q "${beside[@]}" ;;
    server) part server server -q "${beside[@]}" ;;
    integration) part integration integration -q "${waiting[@]}" ;;
    faults) part faults faults -v "${waiting[@]}" ;;
    properties)
      if [ "${SOAK:-}" = 1 ]; then part properties '' -v "${beside[@]}" tests/properties; else part properties properties -v "${beside[@]}"; fi
      ;;
    e2e)
      part e2e "e2e and not alone" -v "${beside[@]}"
      part e2e-alone "e2e and alone" -v
      ;;
    *) die "no such part of the tests: $name" ;;
  esac
done
[ "${#failed[@]}" -gt 0 ] || exit 0
say "what failed, once more:"
.venv/bin/python hack/failures.py "${failed[@]/#/$reports/}" >&2
die "failed: ${failed[*]}"
