"""KEDA. For `make test-all`; `hack/world.sh keda` makes its images."""

from __future__ import annotations

from hack.world import settings
from hack.world.job import Job
from hack.world.part import group

from . import go
from .monitoring import program_image

_FOLDER = settings.HOME / "keda"
_VERSION = "2.19.0"
_PROGRAMS = {
    "operator": ("ghcr.io/kedacore/keda", "/keda"),
    "adapter": ("ghcr.io/kedacore/keda-metrics-apiserver", "/keda-adapter"),
    "webhooks": ("ghcr.io/kedacore/keda-admission-webhooks", "/keda-admission-webhooks"),
}
IMAGES = tuple(f"{repository}:{_VERSION}" for repository, _ in _PROGRAMS.values())


def _build(job: Job) -> None:
    programs = {f"keda-{name}": f"github.com/kedacore/keda/v2/cmd/{name}" for name in _PROGRAMS}
    variables = {"github.com/kedacore/keda/v2/version.Version": _VERSION}
    go.build(job, "keda", programs, _FOLDER, variables=variables)


_images = [
    program_image(
        f"keda-{name}", f"KEDA's {name}", f"{repository}:{_VERSION}", _FOLDER / f"keda-{name}", path, 1000,
        "keda-programs",
    )
    for name, (repository, path) in _PROGRAMS.items()
]  # fmt: skip

PARTS = [
    go.programs(
        "keda-programs", "KEDA's operator, metrics server and webhooks", f"v{_VERSION}", make=_build,
        made_from="Go module `github.com/kedacore/keda`", seconds=270, module="keda",
        files=tuple(_FOLDER / f"keda-{name}" for name in _PROGRAMS), megabytes=450,
    ),
    *_images,
    group("keda", "KEDA in the cluster", f"v{_VERSION}", "its images", tuple(part.name for part in _images)),
]  # fmt: skip
