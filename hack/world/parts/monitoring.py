"""Prometheus, Alertmanager, prometheus-operator and prometheus-adapter, as images in the cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hack.world import docker, settings
from hack.world.job import Job
from hack.world.part import Part

from . import go

_PROMETHEUS = "quay.io/prometheus/prometheus:v2.53.3"
ALERTMANAGER = "quay.io/prometheus/alertmanager:v0.28.1"
_OPERATOR = "quay.io/prometheus-operator/prometheus-operator:v0.85.0"
_RELOADER = "quay.io/prometheus-operator/prometheus-config-reloader:v0.85.0"
_ADAPTER = "registry.k8s.io/prometheus-adapter/prometheus-adapter:v0.12.0"
IMAGES = (_PROMETHEUS, ALERTMANAGER, _OPERATOR, _RELOADER, _ADAPTER)
_FOLDER = settings.HOME / "monitoring"


def _build_operator(job: Job) -> None:
    module, variable = "github.com/prometheus-operator/prometheus-operator", "github.com/prometheus/common/version"
    programs = {
        "prometheus-operator": f"{module}/cmd/operator",
        "prometheus-config-reloader": f"{module}/cmd/prometheus-config-reloader",
    }
    go.build(job, "prometheus-operator", programs, _FOLDER, variables={f"{variable}.Version": "0.85.0"})


def _build_adapter(job: Job) -> None:
    go.build(job, "prometheus-adapter", {"adapter": "sigs.k8s.io/prometheus-adapter/cmd/adapter"}, _FOLDER)


def program_image(name: str, what: str, tag: str, program: Path, path: str, user: int, needs: str) -> Part:
    """Returns a part for an image of one program; another part compiles the program."""
    make: Callable[[Job], None] = lambda job: docker.build_program(job, tag, program, path, user)  # noqa: E731
    return docker.image(
        tag, what, make, made_from=f"the program of `{needs}`", seconds=4, megabytes=80, needs=(needs,), name=name
    )


PARTS = [
    go.programs(
        "prometheus-operator-programs", "prometheus-operator and its config-reloader", "v0.85.0", make=_build_operator,
        made_from="Go module `github.com/prometheus-operator/prometheus-operator`", seconds=100,
        module="prometheus-operator",
        files=(_FOLDER / "prometheus-operator", _FOLDER / "prometheus-config-reloader"), megabytes=100,
    ),
    go.programs(
        "adapter-program", "prometheus-adapter", "v0.12.0", make=_build_adapter,
        made_from="Go module `sigs.k8s.io/prometheus-adapter`", seconds=100, module="prometheus-adapter",
        files=(_FOLDER / "adapter",), megabytes=60,
    ),
    docker.image(
        _PROMETHEUS, "Prometheus in the cluster", lambda job: docker.build_folder(job, _PROMETHEUS, "prometheus"),
        made_from="Debian package `prometheus`", seconds=15, megabytes=250, needs=("debian-trixie",),
        inputs=("images/prometheus",), name="prometheus-image",
    ),
    docker.image(
        ALERTMANAGER, "Alertmanager in the cluster",
        lambda job: docker.build_folder(job, ALERTMANAGER, "alertmanager"),
        made_from="Debian package `prometheus-alertmanager`", seconds=12, megabytes=80, needs=("debian-trixie",),
        inputs=("images/alertmanager",),
    ),
    program_image(
        "prometheus-operator", "manages Prometheus and its rules", _OPERATOR, _FOLDER / "prometheus-operator",
        "/bin/operator", 65534, "prometheus-operator-programs",
    ),
    program_image(
        "prometheus-config-reloader", "reloads Prometheus when rules change", _RELOADER,
        _FOLDER / "prometheus-config-reloader", "/bin/prometheus-config-reloader", 65534,
        "prometheus-operator-programs",
    ),
    program_image(
        "adapter", "custom metrics API for the HPA", _ADAPTER, _FOLDER / "adapter", "/adapter", 65534,
        "adapter-program",
    ),
]  # fmt: skip
