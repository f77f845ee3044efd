"""kind, which creates the cluster."""

from __future__ import annotations

import shutil
import subprocess

from hack.world import settings
from hack.world.job import Job
from hack.world.part import Recipe

from . import go

_FILE = settings.BIN / "kind"


def _download(job: Job) -> None:
    settings.BIN.mkdir(parents=True, exist_ok=True)
    name = f"kind-{settings.system()}-{settings.architecture()}"
    url = f"https://github.com/kubernetes-sigs/kind/releases/download/{settings.KIND}/{name}"
    job.download(url, _FILE, f"{url}.sha256sum")
    _FILE.chmod(0o755)


def _build(job: Job) -> None:
    go.build(job, "kubernetes", {"kind": "sigs.k8s.io/kind"}, settings.BIN)


def _usable() -> bool:
    """Whether our kind, or one on PATH, has our minor version or a later one."""
    for candidate in (str(_FILE), shutil.which("kind")):
        if candidate and shutil.which(candidate):
            result = subprocess.run([candidate, "version", "-q"], capture_output=True, text=True, check=False)
            if result.returncode == 0 and _minor(result.stdout.strip()) >= _minor(settings.KIND):
                return True
    return False


def _minor(version: str) -> int:
    rest = version.lstrip("v").split(".")
    return int(rest[1]) if len(rest) > 1 and rest[1].isdigit() else -1


PARTS = [
    go.programs(
        "kind", "creates the cluster", settings.KIND, make=_build, made_from="Go module `sigs.k8s.io/kind`", seconds=15,
        module="kubernetes", files=(_FILE,), present=_usable, megabytes=15,
        registry=Recipe(made_from="release download", make=_download, seconds=3, megabytes=15),
    )
]  # fmt: skip
