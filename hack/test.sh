#!/usr/bin/env bash
# test.sh PART…: installs what these parts of the tests need, then runs them in this order.
#   unit         pure code and golden files
#   rules        the Prometheus rules and the dashboards' queries, against a real Prometheus
#   server       the model images with a real Triton in Docker
#   integration  the operator against a real API server
#   faults       the operator under faults of its surroundings; with SOAK=1 more of them and for longer
#   properties   generated bad input against a real API server; with SOAK=1 more examples, and the pure properties too
#   e2e          the installation in the kind cluster
. "$(dirname "$0")/lib.sh"

failed=()
reports=$cache/reports

# part NAME MARKER-EXPRESSION [OPTION…]: runs every test that the expression selects. The next part runs even if one
# fails.
part() {
  local start=$SECONDS result=passed report=$reports/$1
  say "$1 tests"
  rm -f "$report"
  # Tests that use the kind cluster set KUBECONFIG themselves.
  env -u KUBECONFIG .venv/bin/pytest -m "$2" --durations=10 --durations-min=2 --junitxml="$report" "${@:3}" ||
    { result=FAILED; failed+=("$1"); }
  say "$1 tests: $result, $((SECONDS - start)) s"
}

# Each worker has its own servers and runs whole files, so tests of two workers never share a server. More workers than
# two cores can run would break tests with deadlines. Tests that mostly wait get one worker more.
parallel=(-n "${TEST_WORKERS:-2}" --dist loadfile)
waiting=(-n "${TEST_WORKERS:-3}" --dist loadfile)

world "$@"
for name in "$@"; do
  case $name in
    unit) part unit "not rules and not server and not integration and not faults and not properties and not e2e" -q "${parallel[@]}" ;;
    rules) part rules rules -q -n "${TEST_WORKERS:-4}" --dist loadfile ;;
    server) part server server -q "${parallel[@]}" ;;
    integration) part integration integration -q "${waiting[@]}" ;;
    # In the order of the names: by default the files with few tests come last, which are the longest here.
    faults) part faults faults -v "${waiting[@]}" --no-loadscope-reorder ;;
    properties)
      if [ "${SOAK:-}" = 1 ]; then part properties '' -v "${parallel[@]}" tests/properties; else part properties properties -v "${parallel[@]}"; fi
      ;;
    e2e)
      part e2e "e2e and not alone" -v "${parallel[@]}" --no-loadscope-reorder
      part e2e-alone "e2e and alone" -v
      ;;
    *) die "no such part of the tests: $name" ;;
  esac
done
[ "${#failed[@]}" -gt 0 ] || exit 0
say "failed tests:"
.venv/bin/python hack/failures.py "${failed[@]/#/$reports/}" >&2
die "failed: ${failed[*]}"
