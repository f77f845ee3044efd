"""Helm, for the tests of the charts."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile

from hack.world import settings
from hack.world.job import FailedError, Job
from hack.world.part import Recipe

from . import go

_VERSION = "v4.2.4"
_FILE = settings.BIN / "helm"


def _build(job: Job) -> None:
    variables = {"helm.sh/helm/v4/internal/version.version": _VERSION}
    go.build(job, "helm", {"helm": "helm.sh/helm/v4/cmd/helm"}, settings.BIN, variables=variables)


def _download(job: Job) -> None:
    settings.BIN.mkdir(parents=True, exist_ok=True)
    folder_name = f"{settings.system()}-{settings.architecture()}"
    url = f"https://get.helm.sh/helm-{_VERSION}-{folder_name}.tar.gz"
    with job.folder() as folder:
        archive = folder / url.rpartition("/")[2]
        job.download(url, archive, f"{url}.sha256sum")
        with tarfile.open(archive) as content:
            source = content.extractfile(f"{folder_name}/helm")
            if source is None:
                raise FailedError(f"{archive.name} contains no helm")
            with (folder / "helm").open("wb") as target:
                shutil.copyfileobj(source, target)
        (folder / "helm").chmod(0o755)
        (folder / "helm").rename(_FILE)


def _usable() -> bool:
    """Whether our helm, or one on PATH, is Helm 4."""
    for candidate in (str(_FILE), shutil.which("helm")):
        if candidate and shutil.which(candidate):
            result = subprocess.run([candidate, "version", "--short"], capture_output=True, text=True, check=False)
            if result.returncode == 0 and re.match(r"v4\.", result.stdout):
                return True
    return False


PARTS = [
    go.programs(
        "helm", "installs the charts, for their tests", _VERSION, make=_build, made_from="Go module `helm.sh/helm/v4`",
        seconds=90, module="helm", files=(_FILE,), present=_usable, megabytes=60,
        registry=Recipe(made_from="release download", make=_download, seconds=5, megabytes=60),
    )
]  # fmt: skip
