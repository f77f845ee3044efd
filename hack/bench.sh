#!/usr/bin/env bash
# bench.sh NAME: runs benchmarks/NAME; the last line of its output is one JSON object.
. "$(dirname "$0")/lib.sh"

name=${1:-}
[ -n "$name" ] && [ -e "benchmarks/$name/__main__.py" ] || {
  say "which benchmark? make bench NAME=…, one of:"
  for main in benchmarks/*/__main__.py; do say "  $(basename "$(dirname "$main")")"; done
  exit 2
}
export PYTHONPATH=tests
exec .venv/bin/python -m "benchmarks.$name"
