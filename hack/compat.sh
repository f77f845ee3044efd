#!/usr/bin/env bash
# compat.sh: tests the operator on other versions of Kubernetes, one after another, and writes docs/compatibility.md.
#
# Environment variables:
#   KUBERNETES  releases, e.g. "v1.31.13 v1.33.5", or `all` for the supported ones (default: the oldest and the newest)
. "$(dirname "$0")/lib.sh"

read -ra supported < <("$(python)" -c 'from hack.world import settings; print(*settings.SUPPORTED)')
case ${KUBERNETES:-} in
  '') releases=("${supported[0]}" "${supported[-1]}") ;;
  all) releases=("${supported[@]}") ;;
  *) read -ra releases <<<"$KUBERNETES" ;;
esac

mkdir -p "$cache/reports"
failed=0
for release in "${releases[@]}"; do
  export KUBERNETES=$release
  world compat
  say "Kubernetes $release"
  rm -f "$cache/reports/compat.json"
  .venv/bin/python -m hack.suite compat || failed=$?
  # Others than failed tests, such as Ctrl-C.
  [ "$failed" -le 1 ] || exit "$failed"
  .venv/bin/python hack/compatibility_page.py Kubernetes "$release"
done
unset KUBERNETES
.venv/bin/python hack/generate.py
exit "$failed"
