"""cosign, for a test of the releases. For `make test-all`; `hack/world.sh cosign` makes it."""

from __future__ import annotations

import re
import shutil
import subprocess

from hack.world import settings
from hack.world.job import Job
from hack.world.part import Recipe

from . import go

_VERSION = "v2.6.3"
# Earlier versions lack options that hack/release gives.
_MINIMUM = (2, 6)
_FILE = settings.BIN / "cosign"


def _build(job: Job) -> None:
    variables = {"sigs.k8s.io/release-utils/version.gitVersion": _VERSION}
    go.build(job, "cosign", {"cosign": "github.com/sigstore/cosign/v2/cmd/cosign"}, settings.BIN, variables=variables)


def _download(job: Job) -> None:
    settings.BIN.mkdir(parents=True, exist_ok=True)
    release = f"https://github.com/sigstore/cosign/releases/download/{_VERSION}"
    name = f"cosign-{settings.system()}-{settings.architecture()}"
    job.download(f"{release}/{name}", _FILE, f"{release}/cosign_checksums.txt")
    _FILE.chmod(0o755)


def command() -> str | None:
    """Returns the path of a cosign that is new enough, ours or one on PATH; or None."""
    path = shutil.which("cosign", path=settings.search_path())
    return path if path and _version(path) >= _MINIMUM else None


def _version(program: str) -> tuple[int, ...]:
    result = subprocess.run([program, "version"], capture_output=True, text=True, check=False)
    match = re.search(r"GitVersion:\s*v(\d+)\.(\d+)", result.stdout + result.stderr)
    return (int(match[1]), int(match[2])) if match else (0,)


PARTS = [
    go.programs(
        "cosign", "signs and verifies, for a test of the releases", _VERSION, make=_build,
        made_from="Go module `github.com/sigstore/cosign`", seconds=200, module="cosign", files=(_FILE,),
        present=lambda: command() is not None, megabytes=140,
        registry=Recipe(made_from="release download", make=_download, seconds=5, megabytes=140),
    )
]  # fmt: skip
