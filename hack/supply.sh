#!/usr/bin/env bash
# supply.sh sbom|audit: lists the operator's third-party packages, or looks up their vulnerabilities.
#   sbom   writes the SBOM of the image (CycloneDX) to dist/operator.cdx.json; needs Docker
#   audit  looks up known vulnerabilities of every package in every lock; needs the internet. Choose the service with
#          pip-audit's PIP_AUDIT_VULNERABILITY_SERVICE (pypi, osv or esms) and PIP_AUDIT_OSV_URL.
. "$(dirname "$0")/lib.sh"

sbom() {
  local image=triton-operator/sbom:dev
  world python
  quietly build-sbom docker build -t "$image" --target sbom .
  mkdir -p dist
  docker run --rm --network none "$image" cat /sbom/triton-operator.cdx.json >dist/operator.cdx.json
  say "dist/operator.cdx.json: $(grep -c '"purl"' dist/operator.cdx.json) packages"
}

# pip-audit gets a separate venv, because it isn't a dependency of the project.
audit() {
  local tools=$cache/supply wanted lock output vulnerable='' unknown=''
  wanted=$(digest_of requirements/supply.lock)
  if [ "$(cat "$tools/.stamp" 2>/dev/null)" != "$wanted" ]; then
    .venv/bin/python -m venv --clear "$tools"
    quietly supply "$tools/bin/pip" install --disable-pip-version-check --require-hashes -r requirements/supply.lock
    echo "$wanted" >"$tools/.stamp"
  fi
  for lock in requirements/*.lock; do
    # --strict: a package that can't be looked up is a failure, not a pass.
    if output=$("$tools/bin/pip-audit" --strict --require-hashes --disable-pip --progress-spinner off -r "$lock" 2>&1); then
      say "$lock: no known vulnerabilities in $(grep -c '^[a-z].*==' "$lock") packages"
      continue
    fi
    case $output in
      *"Found "*" known vulnerabilit"*) vulnerable="$vulnerable $lock" ;;
      # The last line is the reason, after a traceback.
      *) unknown="$unknown $lock" output=${output##*$'\n'} ;;
    esac
    printf '%s\n' "$output" >&2
  done
  [ -z "$vulnerable" ] || say "vulnerable:$vulnerable. Take the fixed versions (make lock UPGRADE=1) and run the tests"
  [ -z "$unknown" ] || say "the look-up failed for:$unknown. Their vulnerabilities are unknown. Use another service with" \
    "PIP_AUDIT_VULNERABILITY_SERVICE=osv (and PIP_AUDIT_OSV_URL for a mirror), or run it with internet access"
  [ -z "$vulnerable$unknown" ]
}

case ${1:-} in
  sbom | audit) "$1" ;;
  *) die "usage: $0 sbom|audit" ;;
esac
