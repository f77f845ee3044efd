"""Inspects this machine: its system, the hosts that it can reach, and the Debian packages that it lacks."""

from __future__ import annotations

import concurrent.futures
import importlib.util
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Collection
from pathlib import Path

from . import docker, ledger, settings
from .job import FailedError, Job
from .part import Source
from .progress import say

_PROBE_SECONDS = 4.0
# The Debian package of each command. "venv" means the modules that `python3 -m venv` needs.
_PACKAGES = {
    "dockerd": "docker.io",
    "apparmor_parser": "apparmor",
    "ip": "iproute2",
    "iptables": "iptables",
    "mmdebstrap": "mmdebstrap",
    "curl": "curl",
    "venv": "python3-venv",
}
_LISTS_SECONDS = 24 * 3600


def probed() -> dict[str, str]:
    """Returns one URL for each host that the source `registry` needs."""
    return {
        "docker.io": "https://registry-1.docker.io/v2/",
        "nvcr.io": "https://nvcr.io/v2/",
        "dl.k8s.io": f"https://dl.k8s.io/release/{settings.KUBERNETES}/bin/linux/amd64/kubectl.sha256",
        "github.com": f"https://github.com/kubernetes-sigs/kind/releases/download/{settings.KIND}/kind-linux-amd64.sha256sum",
    }


def unreachable() -> list[str]:
    """Returns the hosts of `probed` that don't answer within a few seconds."""
    pool = concurrent.futures.ThreadPoolExecutor(max_workers=8)
    answers = {name: pool.submit(_answers, url) for name, url in probed().items()}
    completed, _ = concurrent.futures.wait(answers.values(), timeout=_PROBE_SECONDS)
    pool.shutdown(wait=False, cancel_futures=True)
    return [name for name, future in answers.items() if future not in completed or not future.result()]


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=_PROBE_SECONDS):
            return True
    except urllib.error.HTTPError as error:
        return error.code == 401  # a container registry that requires a token
    except (OSError, ValueError):
        return False


def source(stored: Path) -> Source:
    """Returns the source of tools and images: WORLD if set, else the last run's, else by what can be reached."""
    chosen = os.environ.get("WORLD") or (stored.read_text() if stored.exists() else "")
    if chosen == "registry":
        return "registry"
    if chosen == "packages":
        return "packages"
    if chosen:
        raise FailedError(f"WORLD={chosen} is invalid", "set WORLD=registry or WORLD=packages, or unset it")
    silent = unreachable()
    detected: Source = "packages" if silent else "registry"
    why = f"{', '.join(silent)} can't be reached" if silent else "container registries and release hosts answer"
    say(f"world: {_words(detected)}, because {why} (set WORLD=registry|packages to override)")
    return detected


def _words(source: str) -> str:
    return {
        "registry": "images and tools come from container registries and release downloads",
        "packages": "images and tools are built from package registries",
    }[source]


def is_debian() -> bool:
    release = Path("/etc/os-release")
    lines = release.read_text().splitlines() if release.exists() else []
    return any(line in ("ID=debian", "ID=ubuntu") for line in lines)


def may_install() -> bool:
    return os.geteuid() == 0 and is_debian() and os.environ.get("NO_INSTALL", "") in ("", "0")


def missing(commands: Collection[str]) -> list[str]:
    """Returns the Debian packages of the commands that aren't installed."""
    return sorted({_PACKAGES[name] for name in commands if not _is_installed(name)})


def _is_installed(command: str) -> bool:
    if command == "dockerd":
        return (shutil.which("docker") is not None and shutil.which("dockerd") is not None) or docker.answers()
    if command == "apparmor_parser" and not _apparmor():
        return True
    if command == "venv":
        return importlib.util.find_spec("ensurepip") is not None
    return shutil.which(command) is not None


def _apparmor() -> bool:
    """Whether the kernel enforces AppArmor profiles. If so, Docker needs the parser to start containers."""
    try:
        return Path("/sys/module/apparmor/parameters/enabled").read_text().strip() == "Y"
    except OSError:
        return False


def install(job: Job, packages: Collection[str]) -> None:
    """Installs Debian packages and records them and their dependencies in the ledger."""
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    lists = list(Path("/var/lib/apt/lists").glob("*Packages*"))
    if not lists or time.time() - max(file.stat().st_mtime for file in lists) > _LISTS_SECONDS:
        job.run("apt-get", "update", "-qq", env=env)
    before = _installed()
    try:
        options = ["-y", "-qq", "--no-install-recommends", "-o", "APT::Keep-Downloaded-Packages=false"]
        job.run("apt-get", "install", *options, *packages, env=env)
    finally:
        for name in sorted(_installed() - before):
            ledger.write("apt", name)


def _installed() -> set[str]:
    result = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package}\n"], capture_output=True, text=True, check=False
    )
    return {line.split()[1] for line in result.stdout.splitlines() if line.startswith("ii")}


def must_be_installed(packages: Collection[str]) -> FailedError:
    """Returns the error for missing packages that this program may not install."""
    if "docker.io" in packages and not is_debian():
        advice = "install Docker: https://docs.docker.com/get-docker"
    elif is_debian():
        advice = f"apt-get install {' '.join(packages)} (done automatically as root, unless NO_INSTALL=1)"
    else:
        advice = "install them with your system's package manager"
    return FailedError(f"not installed: {', '.join(packages)}", advice)


def free_megabytes(path: Path) -> int:
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free // 2**20


def memory_megabytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
