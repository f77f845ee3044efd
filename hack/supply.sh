#!/usr/bin/env bash
# supply.sh sbom|audit: what the operator's image has of other people's code, and what is known against it.
#   sbom   writes dist/operator.cdx.json (CycloneDX), from the locked packages and their hashes
#   audit  asks PyPI for known vulnerabilities of every locked package; needs the internet
. "$(dirname "$0")/lib.sh"

# In an environment of their own: they are no dependencies of the project.
tools=$cache/supply
tool() {
  [ -x "$tools/bin/$1" ] && return
  [ -x "$tools/bin/pip" ] || .venv/bin/python -m venv "$tools"
  quietly "supply-$1" "$tools/bin/pip" install --disable-pip-version-check "$2"
}

case ${1:-} in
  sbom)
    tool cyclonedx-py 'cyclonedx-bom>=7.5,<8'
    mkdir -p dist
    "$tools/bin/cyclonedx-py" requirements requirements/operator.lock --pyproject pyproject.toml \
      --mc-type application --output-reproducible --of JSON -o dist/operator.cdx.json
    say "dist/operator.cdx.json: $(grep -c '"purl"' dist/operator.cdx.json) packages"
    ;;
  audit)
    tool pip-audit 'pip-audit>=2.10,<3'
    failed=''
    for lock in requirements/*.lock; do
      # --strict: a package that could not be looked up is a failure, and not nothing found.
      say "$lock"
      "$tools/bin/pip-audit" --strict --require-hashes --disable-pip --progress-spinner off -r "$lock" || failed="$failed $lock"
    done
    [ -z "$failed" ] || die "not clean, or not to be looked up:$failed"
    ;;
  *) die "supply.sh sbom|audit" ;;
esac
