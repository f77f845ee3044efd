#!/usr/bin/env bash
# Makes .venv, with exactly the locked packages and this project; does nothing where that is done.
. "$(dirname "$0")/lib.sh"

venv=$root/.venv
stamp=$venv/.stamp
inputs="pyproject.toml requirements/dev.lock"

usable() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

python() {
  local candidate
  for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
    if usable "$candidate"; then echo "$candidate"; return; fi
  done
  die "Python 3.11 or later is needed; say which with PYTHON=/path/to/python3"
}

# shellcheck disable=SC2086
wanted=$(digest_of $inputs)
usable "$venv/bin/python" && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && exit 0

if ! usable "$venv/bin/python"; then
  made_with=$(python)
  say "making .venv with $("$made_with" --version)"
  rm -rf "$venv"
  "$made_with" -m venv "$venv"
fi
say "installing the locked Python packages into .venv"
quietly pip "$venv/bin/pip" install --disable-pip-version-check --require-hashes -r requirements/dev.lock
quietly pip-project "$venv/bin/pip" install --disable-pip-version-check --no-deps --no-build-isolation -e .
echo "$wanted" >"$stamp"
