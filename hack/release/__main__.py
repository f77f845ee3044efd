"""Makes everything that a tag publishes.

Helm charts, install manifests, the OLM bundle, the krew plugin, the Python wheel, images, the SBOM, checksums and a
signature. It publishes nothing, except images with --push.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from . import archive, bundle, images, krew, project, sums
from .project import ROOT, ReleaseError

CHARTS = ("triton-operator", "triton-operator-crds")
IMAGES = "images.txt"
MANIFESTS = {
    "install.yaml": "default",
    "policies.yaml": "policies",
    "monitoring.yaml": "monitoring",
    "adapter.yaml": "monitoring/adapter",
    "detector.yaml": "samples/detector",
}


def make(folder: Path, version: str, time: int, digests: Mapping[str, str]) -> None:
    """Writes what needs neither Docker nor a network into the folder.

    `digests`: of the pushed images by name. What installs them names them by digest, and IMAGES lists them, so the
    signature of the checksums covers the images too.
    """
    pins = {f"{project.IMAGES}/{name}:{version}": digest for name, digest in digests.items()}
    if pins:
        (folder / IMAGES).write_text("".join(f"{image}@{digest}\n" for image, digest in pins.items()))
    for chart in CHARTS:
        files = archive.of_folder(ROOT / "charts" / chart, chart)
        if (values := f"{chart}/values.yaml") in files and "operator" in digests:
            files[values] = files[values].replace(b"  digest: ''\n", f"  digest: {digests['operator']}\n".encode())
        archive.write(folder / f"{chart}-{version}.tgz", files, time)
    for file, source in MANIFESTS.items():
        (folder / file).write_bytes(_pinned(project.kustomized(source).encode(), pins))
    files = {f"bundle/{path}": _pinned(text.encode(), pins) for path, text in bundle.files(version).items()}
    archive.write(folder / f"triton-operator-bundle-{version}.tar.gz", files, time)
    krew.write(folder, version, wheel(folder, time, pins), time)


def _pinned(content: bytes, pins: Mapping[str, str]) -> bytes:
    """Returns a file in which each image has its digest behind its tag."""
    for image, digest in pins.items():
        content = content.replace(image.encode(), f"{image}@{digest}".encode())
    return content


def wheel(folder: Path, time: int, pins: Mapping[str, str]) -> Path:
    """Builds the project's wheel with the tools of .venv, and returns its path.

    `pins`: the digests of images, for those that the plugin runs.
    """
    command: list[str | Path] = [
        ROOT / ".venv/bin/pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        folder,
    ]
    with tempfile.TemporaryDirectory() as copy:
        # A copy of what the Dockerfile copies, too: files that aren't tracked stay out.
        for name in project.git("ls-files", "pyproject.toml", "README.md", "LICENSE", "operator").splitlines():
            (Path(copy) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(copy) / name).write_bytes(_pinned((ROOT / name).read_bytes(), pins))
        env = {"PATH": "/usr/bin:/bin", "SOURCE_DATE_EPOCH": str(time)}
        result = subprocess.run(
            [*command, "--disable-pip-version-check", copy], env=env, capture_output=True, text=True, check=False
        )
    if result.returncode:
        raise ReleaseError(f"pip wheel: {result.stderr.strip()}")
    [file] = folder.glob("*.whl")
    return file


def main() -> int:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument(
        "--version", default=project.version(), help="the version, which must be that of pyproject.toml"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="an empty or new folder")
    parser.add_argument("--registry", default=project.IMAGES, help="registry and path of the images")
    parser.add_argument("--no-images", action="store_true", help="make no images and no SBOM: needs no Docker")
    parser.add_argument("--push", action="store_true", help="push the images instead of writing archives")
    parser.add_argument("--key", type=Path, help="key for the signature: of cosign, or an EC key as PEM for openssl")
    parser.add_argument("--dirty", action="store_true", help="allow changes that aren't committed, for a try")
    options = parser.parse_args()
    folder: Path = options.out.resolve()
    try:
        project.check(options.version, dirty=options.dirty)
        if folder.exists() and any(folder.iterdir()):
            raise ReleaseError(f"{folder} isn't empty; delete it first")
        folder.mkdir(parents=True, exist_ok=True)
        notes, digests = ["no images and no SBOM (--no-images)"], dict[str, str]()
        if not options.no_images:
            notes, digests = images.build(folder, options.version, options.registry, push=options.push)
        make(folder, options.version, project.time(), digests)
        if not options.no_images:
            images.sbom(folder / f"operator-{options.version}.cdx.json")
        sums.write(folder)
        if options.key:
            sums.sign(folder, options.key)
        else:
            notes.append("NOT signed: give a key with --key")
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(*(folder / sums.SUMS).read_text().splitlines(), sep="\n")
    print(*(f"release: {note}" for note in notes), sep="\n", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
