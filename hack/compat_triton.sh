#!/usr/bin/env bash
# compat_triton.sh: runs the tests that need only a Triton on other server images, and writes docs/newer-triton.md.
#
# Environment variables:
#   SERVER_IMAGES  images on this machine, e.g. "nvcr.io/nvidia/tritonserver:25.06-py3" (default: the one of the tests)
. "$(dirname "$0")/lib.sh"

world compat-triton
default=triton-operator/server:dev
read -ra images <<<"${SERVER_IMAGES:-$default}"
mkdir -p "$cache/reports"
failed=0
for image in "${images[@]}"; do
  [ "$image" != $default ] || docker build --quiet --tag $default model_images/server >/dev/null
  version=$(docker run --rm --entrypoint printenv "$image" TRITON_SERVER_VERSION) ||
    die "$image isn't on this machine, or has no TRITON_SERVER_VERSION: pull it, or build it from a tritonserver's"
  say "Triton $version, $image"
  rm -f "$cache/reports/compat-triton.json"
  SERVER_IMAGE=$image .venv/bin/python -m hack.suite compat-triton || failed=$?
  # Others than failed tests, such as Ctrl-C.
  [ "$failed" -le 1 ] || exit "$failed"
  .venv/bin/python hack/compatibility_page.py Triton "$version"
done
.venv/bin/python hack/generate.py
exit "$failed"
