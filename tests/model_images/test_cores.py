"""A pod's share of its node, not the node."""

import os
from pathlib import Path

import pytest
from cores import cores


@pytest.fixture(autouse=True)
def node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 64 CPUs, 16 that the process may be scheduled on."""
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
def test_the_limit_of_cgroup_2_counts_rounded_up(tmp_path: Path, text: str, expected: int) -> None:
    (tmp_path / "cpu.max").write_text(text + "\n")
    assert cores(tmp_path) == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1", 16), ("150000", 2), ("", 16)])
def test_the_limit_of_cgroup_1_counts_rounded_up(tmp_path: Path, quota: str, expected: int) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota + "\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cores(tmp_path) == expected


def test_without_cgroups_the_affinity_counts(tmp_path: Path) -> None:
    assert cores(tmp_path) == 16
