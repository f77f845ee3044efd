# The operator's image. The pods' init containers use it too: the static busybox and the repository check.
# For reproducible builds pin BASE by digest, see docs/security.md.
ARG BASE=python:3.13-slim
FROM ${BASE} AS base

FROM base AS busybox
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends busybox-static \
 && cp "$(command -v busybox)" /busybox

# The packages are a separate layer, so that a change of the source doesn't rebuild it.
FROM base AS packages
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_CACHE_DIR=1
RUN python -m venv --without-pip /opt/venv
COPY requirements/operator.lock /tmp/
# unchecked-hash: the root file system is read-only, so Python couldn't rewrite bytecode with a stale timestamp.
# --no-deps: the lock is complete. It omits the packages that only Triton's clients need (hack/lock.py).
RUN pip --python /opt/venv/bin/python install -q --no-compile --no-deps --require-hashes -r /tmp/operator.lock \
 && find /opt/venv -type d \( -name tests -o -name test \) -prune -exec rm -r {} + \
 && /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/venv
# The project is outside the venv; Python finds it through this file.
RUN echo /opt/app >"$(/opt/venv/bin/python -c 'import site; print(site.getsitepackages()[0])')/app.pth"

FROM packages AS project
COPY requirements/build.lock /tmp/
RUN python -m venv --without-pip /opt/build \
 && pip --python /opt/build/bin/python install -q --no-compile --require-hashes -r /tmp/build.lock
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
RUN pip --python /opt/build/bin/python wheel -q --no-deps --no-build-isolation -w /tmp/wheel . \
 && pip --python /opt/venv/bin/python install -q --no-compile --no-deps --no-index --target /opt/app /tmp/wheel/*.whl \
 && /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/app

# The SBOM of the third-party packages, read from the venv; reproducible.
FROM packages AS sbom
COPY requirements/supply.lock /tmp/
RUN python -m venv --without-pip /opt/supply \
 && pip --python /opt/supply/bin/python install -q --no-compile --require-hashes -r /tmp/supply.lock
COPY pyproject.toml /tmp/
RUN mkdir /sbom \
 && /opt/supply/bin/cyclonedx-py environment /opt/venv/bin/python --pyproject /tmp/pyproject.toml \
      --mc-type application --output-reproducible --of JSON -o /sbom/triton-operator.cdx.json

FROM base
COPY --from=busybox /busybox /usr/local/bin/busybox
COPY --from=packages /opt/venv /opt/venv
COPY --from=project /opt/app /opt/app
# Image scanners find the SBOM by its file name extension.
COPY --from=sbom /sbom /usr/share/sbom
ENV PATH=/opt/app/bin:/opt/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["triton-operator"]
CMD ["run"]
