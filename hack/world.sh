#!/usr/bin/env bash
# world.sh GOAL…: what these goals stand on (hack/world has the parts).
# world.sh --purge: removes everything of it.
. "$(dirname "$0")/lib.sh"

case ${1:-} in
  --purge) PYTHONDONTWRITEBYTECODE=1 "$(python)" -m hack.world purge ;;
  *) world "$@" ;;
esac
