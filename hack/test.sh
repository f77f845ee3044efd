#!/usr/bin/env bash
# test.sh PART…: installs what these parts of the tests need, then runs them in this order, but e2e beside the others.
#   unit         pure code and golden files
#   rules        the Prometheus rules and the dashboards' queries, against a real Prometheus
#   server       the model images with a real Triton in Docker
#   integration  the operator against a real API server
#   faults       the operator under faults of its surroundings; with SOAK=1 more of them and for longer
#   properties   generated bad input against a real API server; with SOAK=1 more examples, and the pure properties too
#   e2e          the installation in the kind cluster
. "$(dirname "$0")/lib.sh"

reports=$cache/reports
mkdir -p "$reports"
rm -f "$reports"/*.failed

# part NAME MARKER-EXPRESSION [OPTION…]: runs every test that the expression selects. The next part runs even if one
# fails.
part() {
  local start=$SECONDS result=passed report=$reports/$1
  say "$1 tests"
  rm -f "$report"
  # Tests that use the kind cluster set KUBECONFIG themselves.
  env -u KUBECONFIG .venv/bin/pytest -m "$2" --durations=10 --durations-min=2 --junitxml="$report" "${@:3}" ||
    { result=FAILED; touch "$report.failed"; }
  say "$1 tests: $result, $((SECONDS - start)) s"
}

# workers N: the options for N processes. Each has its own servers and runs whole files, so tests of two processes never
# share a server. Tests that mostly wait get more processes than the two cores of the smallest machine. Files start in the
# order of their names: by default the files with few tests come last, which are the longest here.
workers() { options=(-n "${TEST_WORKERS:-$1}" --dist loadfile --no-loadscope-reorder); }

end_to_end() { workers 3; part e2e "e2e and not alone" -v "${options[@]}"; }

# pytest ends normally after Ctrl-C, so the shell would start the next part.
trap 'exit 130' INT
world "$@"
beside=
for name in "$@"; do
  # These tests mostly wait for the cluster, so the other parts run at the same time. Those with the marker `alone` follow
  # at the end: they measure times, and send load while servers and components of the cluster change.
  if [ "$name" = e2e ] && [ $# -gt 1 ]; then
    say "e2e tests run beside the other parts; their output follows after those: .cache/log/e2e"
    # With its own process group (-m), Ctrl-C here can end all of its processes.
    set -m
    { trap 'exit 130' INT; end_to_end; } </dev/null >"$cache/log/e2e" 2>&1 &
    beside=$!
    set +m
    trap 'kill -INT -- "-$beside" && wait "$beside"' EXIT
  fi
done
for name in "$@"; do
  case $name in
    unit) workers 2; part unit "not rules and not server and not integration and not faults and not properties and not e2e and not docs" -q "${options[@]}" ;;
    rules) workers 4; part rules rules -q "${options[@]}" ;;
    server) workers 2; part server server -q "${options[@]}" ;;
    integration) workers 4; part integration integration -q "${options[@]}" ;;
    faults) workers 4; part faults faults -v "${options[@]}" ;;
    properties)
      workers 2
      if [ "${SOAK:-}" = 1 ]; then part properties '' -v "${options[@]}" tests/properties; else part properties properties -v "${options[@]}"; fi
      ;;
    e2e)
      if [ -n "$beside" ]; then
        say "waiting for the e2e tests"
        wait "$beside" || true
        trap - EXIT
        cat "$cache/log/e2e" >&2
      else
        end_to_end
      fi
      part e2e-alone "e2e and alone" -v
      ;;
    *) die "no such part of the tests: $name" ;;
  esac
done
failed=()
for mark in "$reports"/*.failed; do [ ! -e "$mark" ] || failed+=("$(basename "$mark" .failed)"); done
[ "${#failed[@]}" -gt 0 ] || exit 0
say "failed tests:"
.venv/bin/python hack/failures.py "${failed[@]/#/$reports/}" >&2
die "failed: ${failed[*]}"
