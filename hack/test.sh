#!/usr/bin/env bash
# test.sh NAME…: installs what these parts of the tests need, then runs them: `test`, `test-all`, or parts of
# hack/suite/parts.py. Each part's output is in .cache/log; the summary follows at the end.
#
# Environment variables, with their defaults in parentheses:
#   TEST_WORKERS  processes of each part that uses several; 0: none beside pytest
#   SOAK          1: more faults, more examples, for longer
#   SEED          of the random faults and examples (a new one, which the output names)
#   FORMER        commit, or folder with a release's files, from which the upgrade is tested (the newest tag)
. "$(dirname "$0")/lib.sh"

mkdir -p "$cache/reports"
WORLD_REPORT=$cache/reports/world world "$@"
exec .venv/bin/python -m hack.suite "$@"
