# The operator, which is also the pods' init containers: the static busybox and the checks of the repository.
# What it stands on, by tag or, where every build shall have the same, with a digest: docs/security.md.
ARG BASE=python:3.13-slim
FROM ${BASE} AS base

FROM base AS busybox
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends busybox-static \
 && cp "$(command -v busybox)" /busybox

# The packages are a layer of their own: a change of the source leaves it as it is.
FROM base AS packages
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_CACHE_DIR=1
RUN python -m venv --without-pip /opt/venv
COPY requirements/operator.lock /tmp/
# Unchecked: the root file system is read-only, so bytecode that a date in a layer made stale stays so for ever.
# --no-deps: the lock is all of it, without the packages that only Triton's clients need (hack/lock.py).
RUN pip --python /opt/venv/bin/python install -q --no-compile --no-deps --require-hashes -r /tmp/operator.lock \
 && find /opt/venv -type d \( -name tests -o -name test \) -prune -exec rm -r {} + \
 && /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/venv
# The project lies beside the venv, which finds it by this file.
RUN echo /opt/app >"$(/opt/venv/bin/python -c 'import site; print(site.getsitepackages()[0])')/app.pth"

FROM packages AS project
COPY requirements/build.lock /tmp/
RUN python -m venv /opt/build && /opt/build/bin/pip install -q --require-hashes -r /tmp/build.lock
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
RUN /opt/build/bin/pip wheel -q --no-deps --no-build-isolation -w /tmp/wheel . \
 && pip --python /opt/venv/bin/python install -q --no-compile --no-deps --no-index --target /opt/app /tmp/wheel/*.whl \
 && /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/app

# What of other people's is in the venv: told by the venv itself, and the same in every build.
FROM packages AS sbom
COPY requirements/supply.lock /tmp/
RUN python -m venv /opt/supply && /opt/supply/bin/pip install -q --require-hashes -r /tmp/supply.lock
COPY pyproject.toml /tmp/
RUN mkdir /sbom \
 && /opt/supply/bin/cyclonedx-py environment /opt/venv/bin/python --pyproject /tmp/pyproject.toml \
      --mc-type application --output-reproducible --of JSON -o /sbom/triton-operator.cdx.json

FROM base
COPY --from=busybox /busybox /usr/local/bin/busybox
COPY --from=packages /opt/venv /opt/venv
COPY --from=project /opt/app /opt/app
# Scanners of images find it by its ending.
COPY --from=sbom /sbom /usr/share/sbom
ENV PATH=/opt/app/bin:/opt/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["triton-operator"]
CMD ["run"]
