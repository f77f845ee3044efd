"""Calls Docker, and builds images from packages."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from . import ledger, settings
from .job import Job
from .part import Part, Recipe

# Use the engine's builder: Debian's Docker has no BuildKit plugin.
_BUILDER = {"DOCKER_BUILDKIT": "0"}
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


def answers() -> bool:
    """Whether a Docker daemon answers."""
    return output("info", "--format", "{{.ServerVersion}}") is not None


def output(*command: str) -> str | None:
    """Returns the output of `docker …`, or None if it fails or docker isn't installed."""
    if shutil.which("docker") is None:
        return None
    result = subprocess.run(["docker", *command], capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else None


def has(tag: str) -> bool:
    return output("image", "inspect", "--format", "{{.Id}}", tag) is not None


def inspect(tag: str) -> dict[str, Any]:
    images: list[dict[str, Any]] = json.loads(output("image", "inspect", tag) or "[]")
    return images[0] if images else {}


def built_here(tag: str) -> bool:
    """Whether this program built the image from packages; else it was pulled."""
    key, _, value = settings.LABEL.partition("=")
    labels = inspect(tag).get("Config", {}).get("Labels") or {}
    return bool(labels.get(key) == value)


def build(job: Job, tag: str, context: Path) -> None:
    """Builds the image `tag` from the folder, with this machine's proxy settings."""
    proxies = [f"--build-arg={name}" for name in _PROXIES if os.environ.get(name)]
    job.run("docker", "build", "-t", tag, "--label", settings.LABEL, *proxies, context, env=_BUILDER)


def build_folder(job: Job, tag: str, folder: str, programs: Iterable[Path] = ()) -> None:
    """Builds hack/world/images/FOLDER with the programs in bin/ of the build context."""
    with job.folder() as context:
        shutil.copytree(settings.HERE / "images" / folder, context, dirs_exist_ok=True)
        (context / "bin").mkdir()
        for program in programs:
            os.link(program, context / "bin" / program.name)
        build(job, tag, context)


def build_program(job: Job, tag: str, program: Path, path: str, user: int) -> None:
    """Builds an image that contains only a static program, at the path of the upstream image."""
    with job.folder() as context:
        os.link(program, context / "program")
        lines = ["FROM scratch", f"COPY program {path}", f"USER {user}", f'ENTRYPOINT ["{path}"]']
        (context / "Dockerfile").write_text("\n".join(lines) + "\n")
        build(job, tag, context)


def pull(tag: str) -> Callable[[Job], None]:
    """Returns a recipe that pulls an image, and deletes one with the same name that was built from packages."""

    def make(job: Job) -> None:
        if built_here(tag):
            job.run("docker", "rmi", "--force", tag)
        ledger.write("image", tag)
        job.run("docker", "pull", "--quiet", tag)

    return make


def usable(tag: str, name: str) -> bool:
    """Whether the image exists and was either pulled or built completely (it has a stamp)."""
    return has(tag) and ((settings.STAMPS / name).exists() or not built_here(tag))


def image(
    tag: str, what: str, make: Callable[[Job], None], *, made_from: str, seconds: int, megabytes: int,
    needs: tuple[str, ...] = (), inputs: tuple[str, ...] = (), name: str = "", pulls: bool = True,
    commands: tuple[str, ...] = (),
) -> Part:  # fmt: skip
    """Returns a part for an image in Docker, which is pulled from its registry or built from packages.

    `pulls` is False for an intermediate image that the source `registry` doesn't need.
    """
    path, _, version = tag.rpartition(":")
    name = name or path.rpartition("/")[2]
    from_registry = Recipe(
        made_from=f"image `{tag}`", make=pull(tag), seconds=30, megabytes=megabytes, needs=("docker",),
        advice="if Docker can't reach a container registry, set WORLD=packages",
    )  # fmt: skip
    from_packages = Recipe(
        made_from=made_from, make=make, seconds=seconds, megabytes=megabytes, needs=("docker", *needs), inputs=inputs,
        commands=commands,
    )  # fmt: skip
    return Part(
        name=name, what=what, version=version, present=functools.partial(usable, tag, name),
        registry=from_registry if pulls else None, packages=from_packages,
    )  # fmt: skip
