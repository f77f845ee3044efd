"""The images of the release, as OCI archives or, with --push, in the registry."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import NamedTuple

from .project import ROOT, ReleaseError

PLATFORMS = "linux/amd64,linux/arm64"
_LOCAL = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}


class Image(NamedTuple):
    """An image, from a Dockerfile below the root. `context` is the folder that the build reads."""

    name: str
    dockerfile: str
    context: str


ALL = (
    Image("operator", "Dockerfile", "."),
    Image("perf-analyzer", "perf_analyzer/Dockerfile", "."),
    Image("server", "model_images/server/Dockerfile", "model_images/server"),
    Image("detection", "model_images/detection/Dockerfile", "model_images/detection"),
    Image("passthrough", "model_images/passthrough/Dockerfile", "model_images/passthrough"),
    Image("accumulator", "model_images/accumulator/Dockerfile", "model_images/accumulator"),
    Image("custom-metrics", "model_images/custom_metrics/Dockerfile", "model_images/custom_metrics"),
)
SBOM = Image("sbom", "Dockerfile", ".")


def build(folder: Path, version: str, registry: str, *, push: bool) -> list[str]:
    """Builds the images, and returns lines that say for which platforms and why.

    With Docker's plugin buildx, for all platforms. Without it, only for this machine's. Writes an archive for each into
    the folder, or pushes it.
    """
    multiple = has_buildx()
    for image in ALL:
        tag = f"{registry}/{image.name}:{version}"
        base = ["--file", image.dockerfile, "--tag", tag]
        target = folder / f"image-{image.name}-{version}.tar"
        if multiple:
            where = ["--push"] if push else ["--output", f"type=oci,dest={target}"]
            _docker("buildx", "build", "--platform", PLATFORMS, *base, *where, image.context)
        else:
            _docker("build", *base, image.context)
            _docker(*(["push", tag] if push else ["save", "--output", str(target), tag]))
    if multiple:
        return [f"images for {PLATFORMS}"]
    here = _LOCAL.get(platform.machine(), platform.machine())
    return [f"images ONLY for {here}: Docker has no plugin buildx here, so the other platforms are missing"]


def sbom(target: Path) -> None:
    """Writes the SBOM of the operator's image, as the image contains it."""
    tag = "triton-operator/sbom:release"
    _docker("build", "--target", SBOM.name, "--file", SBOM.dockerfile, "--tag", tag, SBOM.context)
    text = _docker("run", "--rm", "--network", "none", tag, "cat", "/sbom/triton-operator.cdx.json")
    json.loads(text)
    target.write_text(text)


def has_buildx() -> bool:
    """Returns whether Docker has the plugin that builds for several platforms."""
    done = subprocess.run(["docker", "buildx", "version"], capture_output=True, check=False)
    return done.returncode == 0


def _docker(*arguments: str) -> str:
    # Without the plugin buildx, Docker's client can't use BuildKit.
    env = {**os.environ, **({} if arguments[0] == "buildx" or has_buildx() else {"DOCKER_BUILDKIT": "0"})}
    done = subprocess.run(["docker", *arguments], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"docker {' '.join(arguments)}: {done.stderr.strip()[-2000:]}")
    return done.stdout
