"""The number of cores is that of the pod, not of the node."""

import os
from pathlib import Path

import pytest
from cores import cores


@pytest.fixture(autouse=True)
def node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a node with 64 CPUs and an affinity of 16."""
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max 100000", 16),
        ("200000 100000", 2),
        ("50000 100000", 1),
        ("250000 100000", 3),
        ("9900000 100000", 16),
        ("nonsense", 16),
    ],
)
def test_uses_the_limit_of_cgroup_version_2_rounded_up(tmp_path: Path, text: str, expected: int) -> None:
    (tmp_path / "cpu.max").write_text(text + "\n")
    assert cores(tmp_path) == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1", 16), ("150000", 2), ("", 16)])
def test_uses_the_limit_of_cgroup_version_1_rounded_up(tmp_path: Path, quota: str, expected: int) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota + "\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cores(tmp_path) == expected


def test_uses_the_affinity_without_cgroups(tmp_path: Path) -> None:
    assert cores(tmp_path) == 16
