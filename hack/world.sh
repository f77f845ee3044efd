#!/usr/bin/env bash
# world.sh GOAL…: installs or builds what these goals need (the parts are in hack/world).
# world.sh --purge: removes everything that it installed outside the clone.
. "$(dirname "$0")/lib.sh"

case ${1:-} in
  --purge) PYTHONDONTWRITEBYTECODE=1 "$(python)" -m hack.world purge ;;
  *) world "$@" ;;
esac
