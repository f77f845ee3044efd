"""The versions of Kubernetes that the operator supports."""

from __future__ import annotations

import pytest

from hack.world import settings
from support import gen
from support.observing import seen
from triton_operator.api import kubernetes_versions as versions
from triton_operator.runtime.discovery import _tell_version
from triton_operator.status.assess import assess


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v1.31.13", (1, 31)), ("1.31+", (1, 31)), ("1.36", (1, 36)), ("1.33.5-gke.100", (1, 33)), ("2.0", (2, 0)),
        ("1.", (0, 0)), (".", (0, 0)), ("", (0, 0)), ("one.two", (0, 0)), ("v1", (0, 0)),
    ],
)  # fmt: skip
def test_reads_versions(text: str, version: tuple[int, int]) -> None:
    assert versions.minor(text) == version


def test_every_minor_version_between_the_oldest_and_the_newest_is_tested() -> None:
    tested = [versions.minor(release) for release in versions.TESTED]
    assert tested == [(1, number) for number in range(versions.OLDEST[1], versions.NEWEST[1] + 1)]
    assert settings.SUPPORTED == versions.TESTED
    lines = (settings.ROOT / "hack/versions.env").read_text().splitlines()
    assert any(f"KUBERNETES_VERSION={release}" in lines for release in versions.TESTED)


@pytest.mark.parametrize("version", [(1, 31), (1, 99), (0, 0)])
def test_a_supported_or_unknown_version_is_not_mentioned(version: tuple[int, int]) -> None:
    assert "Kubernetes" not in progressing(version)


def test_an_older_version_is_told_at_the_start_and_in_a_condition(caplog: pytest.LogCaptureFixture) -> None:
    words = "Kubernetes 1.30 is older than 1.31, the oldest version that the operator supports"
    assert progressing((1, 30)) == f"the Deployment is being created; {words}"
    _tell_version((1, 30))
    assert [(r.levelname, r.message) for r in caplog.records] == [("WARNING", words)]


def progressing(version: tuple[int, int]) -> str:
    """Returns the message of the condition Progressing in a cluster of this version."""
    status = assess(*seen(gen.model(), kubernetes=version), "2026-01-01T00:00:00Z")
    return next(c.message for c in status.conditions if c.type == "Progressing")


def test_the_documentation_names_the_range() -> None:
    page = (settings.ROOT / "docs/compatibility.md").read_text()
    assert f"**Kubernetes {versions.name(versions.OLDEST)} to {versions.name(versions.NEWEST)}.**" in page
    assert f"**Kubernetes {versions.name(versions.OLDEST)} or newer**" in (settings.ROOT / "docs/limits.md").read_text()
