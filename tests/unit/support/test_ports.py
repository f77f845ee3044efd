"""Ports that several test processes take at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hack.world import settings

# 60 of 200 places for three ports: two processes without owners would share some.
TAKE = """
import pathlib, sys
from support import ports
ports.RANGE, ports.LOCKS = (20_000, 20_600), pathlib.Path(sys.argv[1])
print(*(port for _ in range(60) for port in ports.free(3)), flush=True)
input()
"""


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("PYTHONPATH", f"{settings.ROOT}:{settings.ROOT / 'tests'}:{settings.ROOT / 'operator'}")
    return [sys.executable, "-c", TAKE, str(tmp_path / "ports")]


def test_two_processes_never_own_the_same_port(command: list[str]) -> None:
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        lines = [process.stdout.readline() for process in processes if process.stdout]
    finally:
        for process in processes:
            process.communicate("\n")
    first, second = (set(line.split()) for line in lines)
    assert (len(first), len(second)) == (180, 180)
    assert first.isdisjoint(second)


def test_a_process_that_ends_gives_its_ports_back(command: list[str]) -> None:
    for _ in range(4):
        ended = subprocess.run(command, input="\n", capture_output=True, text=True, check=True)
        assert len(set(ended.stdout.split())) == 180
