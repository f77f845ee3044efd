"""Whatever is installed is what was looked at: pinned, with hashes, and asked for so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
INSTALLERS = [ROOT / "Dockerfile", ROOT / "hack" / "venv.sh"]


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


@pytest.mark.parametrize("file", INSTALLERS, ids=lambda p: p.name)
def test_packages_are_installed_by_their_hashes(file: Path) -> None:
    """The project itself has none: it is installed from its own source, without anything else."""
    installs = re.findall(r"pip\"?(?: --python \S+)? install [^\n&]+", file.read_text())
    assert len(installs) == 2 + (file.name == "Dockerfile")
    for command in installs:
        assert "--require-hashes" in command or "--no-deps" in command, command
    assert sum("--require-hashes" in command for command in installs) == len(installs) - 1


def test_the_operators_image_takes_what_the_lock_says() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert "COPY requirements/operator.lock" in text
    assert not re.search(r"\b(curl|wget|git clone)\b|^ADD ", text, re.MULTILINE)
