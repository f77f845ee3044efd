#!/usr/bin/env bash
# docs.sh build|test|pictures: the site of the documentation.
#   build     builds it into .cache/site; every warning, such as a broken link, is a failure
#   test      builds it, then searches and follows links in a headless Chromium, and draws the dashboards there
#   pictures  writes the pictures of the dashboards in docs/images
. "$(dirname "$0")/lib.sh"

# A separate venv, because MkDocs isn't a dependency of the project.
tools=$cache/docs
build() {
  local wanted
  wanted=$(digest_of requirements/docs.lock)
  if [ "$(cat "$tools/.stamp" 2>/dev/null)" != "$wanted" ]; then
    "$(python)" -m venv --clear "$tools"
    quietly docs-pip "$tools/bin/pip" install --disable-pip-version-check --require-hashes -r requirements/docs.lock
    echo "$wanted" >"$tools/.stamp"
  fi
  # Without -q, which also hides the warnings from --strict.
  NO_MKDOCS_2_WARNING=1 quietly docs "$tools/bin/mkdocs" build --strict
  say "built .cache/site/index.html"
}

# The dashboards need the project and Prometheus. The site's venv has the library that draws them.
boards() {
  world rules
  .venv/bin/pytest -q -p no:cacheprovider -m docs tests/docs/test_boards.py
}

case ${1:-} in
  build) build ;;
  test)
    build
    # Without tests/conftest.py, which needs Hypothesis from the project's venv.
    "$tools/bin/python" -m pytest -q -p no:cacheprovider --confcutdir=tests/docs -m docs tests/docs/test_site.py
    boards
    ;;
  pictures)
    build
    UPDATE_PICTURES=1 boards
    ;;
  *) die "usage: docs.sh build|test|pictures" ;;
esac
