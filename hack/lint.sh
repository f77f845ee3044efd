#!/usr/bin/env bash
# Runs all static checks and reports every failure, not only the first.
. "$(dirname "$0")/lib.sh"

failed=0
check() {
  local name=$1 start=$SECONDS
  shift
  if quietly "lint-$name" "$@"; then say "$name: ok, $((SECONDS - start)) s"; else failed=1; fi
}

bin=$root/.venv/bin
check ruff "$bin/ruff" check .
check format "$bin/ruff" format --check .
check mypy "$bin/mypy"
check imports "$bin/lint-imports"
# shellcheck disable=SC2016
check spelling bash -c 'git ls-files -z | xargs -0 "$1"' - "$bin/codespell"
check prose "$bin/python" hack/prose.py
check generated "$bin/python" hack/generate.py --check
check reasons "$bin/python" hack/reasons_page.py
check locks "$bin/python" hack/lock.py --check
# shellcheck disable=SC2016
check shells bash -c 'for script; do bash -n "$script" || exit 1; done' - hack/*.sh operator/triton_operator/render/*.sh benchmarks/bare/inside.sh examples/*/*.sh .ci/run
command -v shellcheck >/dev/null && check shellcheck shellcheck -x hack/*.sh operator/triton_operator/render/*.sh benchmarks/bare/inside.sh examples/*/*.sh .ci/run
exit $failed
