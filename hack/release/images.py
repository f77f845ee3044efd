"""The images of the release, as OCI archives or, with --push, in the registry."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import tempfile
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
    Image("language", "model_images/language/Dockerfile", "model_images/language"),
    Image("custom-metrics", "model_images/custom_metrics/Dockerfile", "model_images/custom_metrics"),
)
SBOM = Image("sbom", "Dockerfile", ".")
_THIS_ONLY = "To build only for this machine, set DOCKER_BUILDKIT=0"
_REMEDIES = {
    "not supported for the docker driver": f"Make a builder first: docker buildx create --use. {_THIS_ONLY}",
    "exec format error": f"The builder needs QEMU: https://docs.docker.com/go/build-multi-platform. {_THIS_ONLY}",
}
"""What to do about errors of buildx, by a part of their text."""


def build(folder: Path, version: str, registry: str, *, push: bool) -> tuple[list[str], dict[str, str]]:
    """Builds the images. Returns lines that say for which platforms and why, and the digest of each pushed image.

    With Docker's plugin buildx, for all platforms. Without it or with DOCKER_BUILDKIT=0, only for this machine's.
    Writes an archive for each into the folder, or pushes it.
    """
    missing = _missing()
    digests: dict[str, str] = {}
    for image in ALL:
        tag = f"{registry}/{image.name}:{version}"
        base = ["--file", image.dockerfile, "--tag", tag]
        target = folder / f"image-{image.name}-{version}.tar"
        if not missing:
            where = ["--push"] if push else ["--output", f"type=oci,dest={target}"]
            with tempfile.TemporaryDirectory() as scratch:
                metadata = Path(scratch) / "made.json"
                where += ["--metadata-file", str(metadata)]
                _docker("buildx", "build", "--platform", PLATFORMS, *base, *where, image.context)
                digest = json.loads(metadata.read_text())["containerimage.digest"]
        else:
            _docker("build", *base, image.context)
            _docker(*(["push", tag] if push else ["save", "--output", str(target), tag]))
            digest = _pushed(tag) if push else ""
        if push:
            digests[image.name] = digest
    if not missing:
        return [f"images for {PLATFORMS}"], digests
    here = _LOCAL.get(platform.machine(), platform.machine())
    return [f"images ONLY for {here}: {missing}, so the other platforms are missing"], digests


def _pushed(tag: str) -> str:
    """Returns the digest under which the registry has the image."""
    repository = tag.rpartition(":")[0]
    entries = json.loads(_docker("inspect", "--format={{json .RepoDigests}}", tag))
    return next(digest for name, _, digest in (entry.partition("@") for entry in entries) if name == repository)


def sbom(target: Path) -> None:
    """Writes the SBOM of the operator's image, as the image contains it."""
    tag = "triton-operator/sbom:release"
    # --load: only Docker's default builder puts images into Docker without it.
    builder = ["build"] if _missing() else ["buildx", "build", "--load"]
    _docker(*builder, "--target", SBOM.name, "--file", SBOM.dockerfile, "--tag", tag, SBOM.context)
    text = _docker("run", "--rm", "--network", "none", tag, "cat", "/sbom/triton-operator.cdx.json")
    json.loads(text)
    target.write_text(text)


def _missing() -> str:
    """Returns why Docker builds only for this machine's platform, or "" if it can build for several."""
    if os.environ.get("DOCKER_BUILDKIT") == "0":
        return "DOCKER_BUILDKIT is 0"
    result = subprocess.run(["docker", "buildx", "version"], capture_output=True, check=False)
    return "Docker has no plugin buildx here" if result.returncode else ""


def _docker(*arguments: str) -> str:
    # Without the plugin buildx, Docker's client can't use BuildKit.
    env = {**os.environ, **({"DOCKER_BUILDKIT": "0"} if _missing() else {})}
    result = subprocess.run(["docker", *arguments], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if result.returncode:
        remedies = [remedy for words, remedy in _REMEDIES.items() if words in result.stderr]
        raise ReleaseError("\n".join([f"docker {' '.join(arguments)}: {result.stderr.strip()[-2000:]}", *remedies]))
    return result.stdout
