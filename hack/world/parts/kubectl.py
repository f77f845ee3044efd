"""kubectl. Any version within one minor version of the API server works."""

from __future__ import annotations

import json
import shutil
import subprocess

from hack.world import settings
from hack.world.job import Job
from hack.world.part import Recipe

from . import go, kubernetes

_FILE = settings.BIN / "kubectl"


def _download(job: Job) -> None:
    settings.BIN.mkdir(parents=True, exist_ok=True)
    url = f"https://dl.k8s.io/release/{settings.KUBERNETES}/bin/{settings.system()}/{settings.architecture()}/kubectl"
    job.download(url, _FILE, f"{url}.sha256")
    _FILE.chmod(0o755)


def _build(job: Job) -> None:
    kubernetes.build(job, ["kubectl"], settings.BIN)


def _usable() -> bool:
    for candidate in (str(_FILE), shutil.which("kubectl")):
        if candidate and shutil.which(candidate):
            result = subprocess.run(
                [candidate, "version", "--client", "-o", "json"], capture_output=True, text=True, check=False
            )
            if result.returncode == 0 and abs(_minor(result.stdout) - int(settings.KUBERNETES.split(".")[1])) <= 1:
                return True
    return False


def _minor(version: str) -> int:
    try:
        return int(json.loads(version)["clientVersion"]["minor"].rstrip("+"))
    except (ValueError, LookupError, TypeError):
        return -100


PARTS = [
    go.programs(
        "kubectl", "client of the cluster", settings.KUBERNETES, make=_build, made_from="Go module `k8s.io/kubernetes`",
        seconds=45, module="kubernetes", files=(_FILE,), present=_usable, megabytes=60,
        registry=Recipe(made_from="release download", make=_download, seconds=5, megabytes=60),
    )
]  # fmt: skip
