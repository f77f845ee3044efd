#!/usr/bin/env bash
# Makes .venv, with exactly the locked packages and this project; does nothing where that is done.
# venv.sh check: only tells, by its exit status, whether it is done.
. "$(dirname "$0")/lib.sh"

venv=$root/.venv
stamp=$venv/.stamp
inputs="pyproject.toml requirements/dev.lock"

# A venv that was left half-made has no pip, and PYTHON may name another interpreter than the one that made it.
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
  say "making .venv with $("$made_with" --version)"
  rm -rf "$venv"
  "$made_with" -m venv "$venv"
fi
say "installing the locked Python packages into .venv"
quietly pip "$venv/bin/python" -m pip install --disable-pip-version-check --require-hashes -r requirements/dev.lock
quietly pip-project "$venv/bin/python" -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e .
echo "$wanted" >"$stamp"
