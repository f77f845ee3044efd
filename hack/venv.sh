#!/usr/bin/env bash
# Creates .venv with the locked packages and this project; does nothing if .venv is up to date.
# venv.sh check: exits with 0 if .venv is up to date, else with 1.
. "$(dirname "$0")/lib.sh"

venv=$root/.venv
stamp=$venv/.stamp
inputs="pyproject.toml requirements/dev.lock"

# An interrupted creation leaves a venv without pip. PYTHON may name another interpreter than the one that created it.
usable() {
  "$venv/bin/python" -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null &&
    { [ -z "${PYTHON:-}" ] || [ "$(version "$venv/bin/python")" = "$(version "$PYTHON")" ]; }
}
version() { "$1" -c 'import sys; print(sys.version)'; }

# shellcheck disable=SC2086
wanted=$(digest_of $inputs)
usable && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && exit 0
[ "${1:-}" != check ] || exit 1

if ! usable; then
  made_with=$(python)
  say "creating .venv with $("$made_with" --version)"
  rm -rf "$venv"
  "$made_with" -m venv "$venv"
fi
say "installing the locked Python packages into .venv"
quietly pip "$venv/bin/python" -m pip install --disable-pip-version-check --no-compile --require-hashes -r requirements/dev.lock
quietly pip-project "$venv/bin/python" -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e .
echo "$wanted" >"$stamp"
