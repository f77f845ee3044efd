"""Base images: Debian systems from mmdebstrap, with the names of the public images."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from hack.world import docker, settings
from hack.world.job import FailedError, Job

PYTHON = "python:3.13-slim"
BUSYBOX = "busybox:1.37"
BOOKWORM = "debian:bookworm-slim"
TRIXIE = "debian:trixie-slim"
_CERTIFICATES = Path("/usr/local/share/ca-certificates")
# Settings of this machine's apt that the mirrors may need.
_APT = re.compile(r"^Acquire::(?:(?:https?|ftp)::|Check-|Retries|ForceIPv)")
# As in the public images: no fsync, no documentation.
_DPKG = (
    "force-unsafe-io",
    "path-exclude=/usr/share/doc/*",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/locale/*",
)
_PIP = ("index-url", "extra-index-url", "trusted-host", "find-links", "no-index", "proxy", "timeout")


def mirror() -> str:
    """Returns the URL of Debian's packages: DEBIAN_MIRROR, else the first archive in this machine's apt sources."""
    if named := os.environ.get("DEBIAN_MIRROR"):
        return named
    if "ID=ubuntu" in Path("/etc/os-release").read_text().splitlines():
        raise FailedError("on Ubuntu the URL of Debian's packages isn't known", "set DEBIAN_MIRROR=https://…/debian")
    for file in [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]:
        if file.exists() and (url := archive(file.read_text())):
            return url
    raise FailedError("no Debian archive in /etc/apt/sources.list(.d)", "set DEBIAN_MIRROR=https://…/debian")


def archive(sources: str) -> str:
    """Returns the first archive in apt sources (one-line or deb822 format) that isn't the security archive, or ""."""
    for line in sources.splitlines():
        match = re.match(r"\s*(?:deb\s+(?:\[[^]]*\]\s*)?|URIs:\s*)(\S+)", line)
        if match and "security" not in match[1] and not match[1].startswith("cdrom"):
            return match[1]
    return ""


def _apt_options() -> Iterator[str]:
    result = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False)
    return (line.rstrip(";") for line in result.stdout.splitlines() if _APT.match(line) and not line.endswith('"";'))


def pip_conf(environ: dict[str, str]) -> str:
    """Returns a pip.conf with the index and proxy settings in PIP_ variables of `environ`."""
    options = {}
    for name in _PIP:
        value = environ.get(f"PIP_{name.upper().replace('-', '_')}")
        if value and not Path(value).exists():
            options[name] = value
    return "".join(["[global]\n", *(f"{name} = {value}\n" for name, value in options.items())])


def _pip_settings() -> str:
    """Returns a pip.conf with this machine's settings. As in pip, environment variables win over pip's files."""
    environ = dict(os.environ)
    for folder in (Path("/etc/pip.conf"), Path.home() / ".config/pip/pip.conf", Path.home() / ".pip/pip.conf"):
        if folder.exists():
            for line in folder.read_text().splitlines():
                name, _, value = line.partition("=")
                key = f"PIP_{name.strip().upper().replace('-', '_')}"
                if value.strip() and key not in environ:
                    environ[key] = value.strip()
    return pip_conf(environ)


def _debian(suite: str, tag: str) -> Callable[[Job], None]:
    """Returns a recipe for a minimal Debian system with this machine's certificates and mirrors."""

    def make(job: Job) -> None:
        with job.folder() as folder:
            files = folder / "files"
            (files / "etc").mkdir(parents=True)
            (files / "etc" / "pip.conf").write_text(_pip_settings())
            hooks = [f"--customize-hook=copy-in {files}/etc/pip.conf /etc/"]
            environment = []
            if certificates := sorted(_CERTIFICATES.glob("*.crt")):
                hooks += [f"--customize-hook=copy-in {path} {_CERTIFICATES}" for path in certificates]
                hooks += ['--customize-hook=chroot "$1" update-ca-certificates']
                bundle = "/etc/ssl/certs/ca-certificates.crt"
                environment = ["-c", f"ENV SSL_CERT_FILE={bundle} PIP_CERT={bundle} REQUESTS_CA_BUNDLE={bundle}"]
            job.run(
                "mmdebstrap", "--variant=minbase", "--include=ca-certificates",
                *(f"--dpkgopt={option}" for option in _DPKG),
                *(f"--aptopt={option}" for option in _apt_options()),
                "--aptopt=Acquire::Languages \"none\"",
                *hooks, suite, folder / "root.tar", mirror(),
            )  # fmt: skip
            job.run(
                "docker", "import", "-c", f"LABEL {settings.LABEL}", "-c", 'CMD ["bash"]', *environment,
                folder / "root.tar", tag,
            )  # fmt: skip

    return make


PARTS = [
    docker.image(
        BOOKWORM, "base of the node, the registry and Triton", _debian("bookworm", BOOKWORM), name="debian-bookworm",
        made_from="Debian packages, by mmdebstrap", seconds=25, megabytes=120, pulls=False, commands=("mmdebstrap",),
    ),
    docker.image(
        TRIXIE, "base of Python, Prometheus and busybox", _debian("trixie", TRIXIE), name="debian-trixie",
        made_from="Debian packages, by mmdebstrap", seconds=25, megabytes=120, pulls=False, commands=("mmdebstrap",),
    ),
    docker.image(
        PYTHON, "base of the operator's image", lambda job: docker.build_folder(job, PYTHON, "python"),
        made_from="Debian packages", seconds=10, megabytes=60, needs=("debian-trixie",), inputs=("images/python",),
    ),
    docker.image(
        BUSYBOX, "base of model images with a shell", lambda job: docker.build_folder(job, BUSYBOX, "busybox"),
        made_from="Debian packages", seconds=5, megabytes=5, needs=("debian-trixie",), inputs=("images/busybox",),
    ),
]  # fmt: skip
