"""All packages are pinned with hashes, and pip requires the hashes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.files import named

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
LOCKED_INSTALLS = {
    "Dockerfile": 3,
    "perf_analyzer/Dockerfile": 1,
    "tests/e2e/client/Dockerfile": 1,
    "hack/venv.sh": 1,
    "hack/supply.sh": 1,
    "hack/docs.sh": 1,
}
"""The number of installations from a lock in each file."""
PROJECT_INSTALLS = {
    "Dockerfile": 1,
    "perf_analyzer/Dockerfile": 0,
    "tests/e2e/client/Dockerfile": 0,
    "hack/venv.sh": 1,
    "hack/supply.sh": 0,
    "hack/docs.sh": 0,
}
"""The number of installations of the project itself in each file: from its source, without dependencies."""
# The Dockerfiles of hack/world build replacements of public images, with the users of those images.
ELSEWHERE = {".venv", ".cache", "world"}
DOCKERFILES = named("Dockerfile*", ELSEWHERE)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda p: p.name)
def test_every_package_is_pinned_with_hashes(lock: Path) -> None:
    text = re.sub(r"^#.*\n", "", lock.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip()]
    assert lines
    for line in lines:
        assert re.match(r"[a-z0-9][a-z0-9._-]*(\[[a-z,]+\])?==[^ ;]+( ; [^-]+)? +--hash=sha256:[0-9a-f]{64}", line), (
            line
        )
        assert "://" not in line


@pytest.mark.parametrize(
    "file", sorted((ROOT / "model_images").rglob("requirements*.txt")), ids=lambda p: p.parent.name
)
def test_sample_images_pin_their_packages(file: Path) -> None:
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[0-9.]+( ; .+)?", line)] == []


@pytest.mark.parametrize("file", LOCKED_INSTALLS)
def test_installs_packages_with_required_hashes(file: str) -> None:
    installs = re.findall(r"pip\"?(?: --python \S+)? install [^\n&]+", (ROOT / file).read_text())
    locked = [c for c in installs if re.search(r"--require-hashes -r \S+\.lock\b", c)]
    project = [c for c in installs if "--no-deps" in c and c not in locked]
    assert len(locked) == LOCKED_INSTALLS[file], installs
    assert len(project) == PROJECT_INSTALLS[file], installs
    assert len(installs) == len(locked) + len(project)


def test_operator_image_installs_the_locked_packages() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert "COPY requirements/operator.lock" in text
    assert not re.search(r"\b(curl|wget|git clone)\b|^ADD ", text, re.MULTILINE)


def test_every_lock_is_audited() -> None:
    text = (ROOT / "hack" / "supply.sh").read_text()
    assert "for lock in requirements/*.lock" in text
    assert {lock.stem for lock in LOCKS} == {
        "build",
        "client",
        "dev",
        "docs",
        "operator",
        "perf_analyzer",
        "plugin",
        "supply",
    }
    (command,) = re.findall(r"bin/pip-audit\" (.*) 2>&1", text)
    assert {"--strict", "--require-hashes", "--disable-pip"} <= set(command.split())


def test_operator_image_contains_its_sbom() -> None:
    """The build creates the SBOM from the image's own environment, and reproducibly."""
    text = (ROOT / "Dockerfile").read_text()
    (command,) = re.findall(r"cyclonedx-py (environment /opt/venv/bin/python .*)", text.replace("\\\n", " "))
    assert "--output-reproducible" in command
    last = text.rpartition("\nFROM ")[2]
    assert "COPY --from=packages /opt/venv /opt/venv" in last
    assert "COPY --from=sbom /sbom /usr/share/sbom" in last
    assert re.search(r"^FROM packages AS sbom$", text, re.MULTILINE)


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_base_image_can_be_set_to_a_digest(file: Path) -> None:
    """With `--build-arg BASE=…@sha256:…`. A Dockerfile names no other image."""
    text = file.read_text()
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", text, re.MULTILINE))
    for image in re.findall(r"^FROM (\S+)", text, re.MULTILINE):
        assert image in {*stages, "scratch", "${BASE}"}, image
    for image in re.findall(r"--from=(\S+)", text):
        assert image in stages, image
