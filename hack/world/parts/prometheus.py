"""prometheus and promtool on this machine, for the tests of the rules."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile

from hack.world import settings
from hack.world.job import FailedError, Job
from hack.world.part import Part, Recipe

_TOOLS = ("prometheus", "promtool")


def _usable() -> bool:
    """Whether both tools exist, ours or those on PATH, with version 2.42 or later, which the rules need."""
    for folder in (str(settings.BIN), None):
        paths = [shutil.which(tool, path=folder) for tool in _TOOLS]
        if all(tool and _version(tool) >= (2, 42) for tool in paths):
            return True
    return False


def _version(tool: str) -> tuple[int, int]:
    result = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
    match = re.match(r"\w+, version (\d+)\.(\d+)", result.stdout + result.stderr)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _extract(job: Job) -> None:
    """Extracts two programs from Debian's package. Installing the package would start a service."""
    settings.BIN.mkdir(parents=True, exist_ok=True)
    with job.folder() as folder:
        # apt's unprivileged user must be able to read the folder.
        folder.chmod(0o755)
        job.run("apt-get", "download", "-o", "APT::Sandbox::User=root", "prometheus", cwd=folder)
        (package,) = folder.glob("*.deb")
        job.run("dpkg-deb", "--extract", package, folder)
        for tool in _TOOLS:
            shutil.copy(folder / "usr" / "bin" / tool, settings.BIN / tool)


def _download(job: Job) -> None:
    settings.BIN.mkdir(parents=True, exist_ok=True)
    release = f"https://github.com/prometheus/prometheus/releases/download/{settings.PROMETHEUS}"
    name = f"prometheus-{settings.PROMETHEUS.lstrip('v')}.{settings.system()}-{settings.architecture()}"
    with job.folder() as folder:
        archive = folder / f"{name}.tar.gz"
        job.download(f"{release}/{archive.name}", archive, f"{release}/sha256sums.txt")
        with tarfile.open(archive) as content:
            for tool in _TOOLS:
                source = content.extractfile(f"{name}/{tool}")
                if source is None:
                    raise FailedError(f"{archive.name} contains no {tool}")
                with (folder / tool).open("wb") as target:
                    shutil.copyfileobj(source, target)
                (folder / tool).chmod(0o755)
                (folder / tool).rename(settings.BIN / tool)


PARTS = [
    Part(
        name="prometheus", what="prometheus and promtool, for the tests of the rules", version="2.42 or newer",
        present=_usable,
        registry=Recipe(made_from="release download", make=_download, seconds=10, megabytes=260),
        packages=Recipe(
            made_from="Debian package `prometheus`", make=_extract, seconds=8, megabytes=200,
            advice="run apt-get update, then the same command again",
        ),
    )
]  # fmt: skip
