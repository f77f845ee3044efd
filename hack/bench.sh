#!/usr/bin/env bash
# bench.sh NAME: runs benchmarks/NAME. The last line of its output is one JSON object.
. "$(dirname "$0")/lib.sh"

name=${1:-}
if [ -z "$name" ] || [ ! -e "benchmarks/$name/__main__.py" ]; then
  say "no such benchmark: '$name'. Run make bench NAME=… with one of:"
  for main in benchmarks/*/__main__.py; do say "  $(basename "$(dirname "$main")")"; done
  exit 2
fi
# The benchmark bare sets up its own machine, and suite reads the reports of former runs.
case $name in bare | suite) world venv ;; *) world bench ;; esac
# What benchmarks measure takes as long as in any cluster.
export PERIODS=${PERIODS:-default}
export PYTHONPATH=tests
exec .venv/bin/python -m "benchmarks.$name"
