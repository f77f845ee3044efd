"""Making parts: stamps, changed inputs, failures, interruptions and locks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hack.world import job as jobs
from hack.world import ledger, machine, settings
from hack.world import up as ups
from hack.world.job import FailedError, Job
from hack.world.part import Part, Recipe


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Redirects the shared folder and the source tree to a temporary folder."""
    monkeypatch.setattr(settings, "HOME", tmp_path / "home")
    monkeypatch.setattr(settings, "LOGS", tmp_path / "home" / "log")
    monkeypatch.setattr(settings, "STAMPS", tmp_path / "home" / "stamps")
    monkeypatch.setattr(settings, "HERE", tmp_path)
    monkeypatch.setattr(settings, "ROOT", tmp_path)
    monkeypatch.setattr(ledger, "_FILE", tmp_path / "home" / "ledger")
    return tmp_path


def part(
    folder: Path, name: str, *needs: str, make: Callable[[Job], None] | None = None, inputs: tuple[str, ...] = ()
) -> Part:
    """Returns a part that creates a file with its name."""
    file = folder / name
    recipe = Recipe(
        made_from="", make=make or (lambda job: job.run("cp", "/dev/null", file)), seconds=1, needs=needs,
        inputs=inputs,
        advice="some advice",
    )  # fmt: skip
    return Part(name, name, "", registry=None, packages=recipe, present=file.exists)


def up(*parts: Part, goal: str = "") -> list[str]:
    return list(ups.up([goal or parts[-1].name], {part.name: part for part in parts}, "packages"))


def test_a_second_run_makes_nothing(home: Path) -> None:
    parts = part(home, "a"), part(home, "b", "a")
    assert up(*parts) == ["a", "b"]
    assert up(*parts) == []


def test_a_changed_input_makes_the_part_and_its_dependents_again(home: Path) -> None:
    (home / "recipe").write_text("1")
    parts = part(home, "a", inputs=("recipe",)), part(home, "b", "a"), part(home, "c")
    up(*parts, goal="b")
    (home / "recipe").write_text("2")
    assert up(*parts, goal="b") == ["a", "b"]


def test_makes_a_missing_dependency_only_if_the_goal_is_missing_too(home: Path) -> None:
    parts = part(home, "a"), part(home, "b", "a")
    up(*parts)
    (home / "a").unlink()
    assert up(*parts) == []
    (home / "b").unlink()
    assert up(*parts) == ["a", "b"]


def test_a_failure_shows_the_part_the_end_of_its_log_and_advice(home: Path) -> None:
    def fail(job: Job) -> None:
        job.run("sh", "-c", "echo disk is full >&2; exit 3")

    with pytest.raises(FailedError, match=r"b failed: `sh .*` failed with exit code 3\n(.|\n)*disk is full") as error:
        up(part(home, "a"), part(home, "b", "a", make=fail))
    assert error.value.advice == "some advice"
    assert up(part(home, "a"), part(home, "b", "a")) == ["b"]


def test_a_failure_ends_the_other_running_parts(home: Path) -> None:
    started = threading.Event()

    def sleep(job: Job) -> None:
        started.set()
        job.run("sleep", "60")

    def fail(job: Job) -> None:
        started.wait()
        job.run("false")

    begun = time.monotonic()
    with pytest.raises(FailedError, match="b failed"):
        up(part(home, "a", make=sleep), part(home, "b", make=fail), part(home, "c", "a", "b"))
    assert time.monotonic() - begun < 30


def test_makes_a_part_again_after_an_interruption(home: Path) -> None:
    """The process is killed after it wrote a part of the file."""
    script = f"""
import os, signal
from pathlib import Path
from hack.world import settings, up
from hack.world.part import Part, Recipe
settings.STAMPS = settings.HOME / "stamps"
def make(job):
    Path({str(home / "a")!r}).write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
recipe = Recipe(made_from="", make=make, seconds=1)
up.up(["a"], {{"a": Part("a", "a", "", None, recipe, present=lambda: False)}}, "packages")
"""
    root = Path(__file__).parents[3]
    env = {**os.environ, "TRITON_OPERATOR_CACHE": str(home / "home"), "PYTHONPATH": str(root)}
    result = subprocess.run([sys.executable, "-c", script], env=env, cwd=root, check=False)
    assert result.returncode == -9
    assert (home / "a").read_text() == "half"
    assert up(part(home, "a")) == ["a"]
    assert (home / "a").read_text() == ""


def test_two_clones_wait_for_each_other(home: Path) -> None:
    alone = []

    def make(job: Job) -> None:
        alone.append(1)
        time.sleep(0.2)
        assert alone == [1]
        alone.pop()
        (home / "a").write_text("")

    parts = part(home, "a", make=make), part(home, "b", make=make)
    threads = [threading.Thread(target=up, args=(clone,)) for clone in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (home / "a").exists()


def test_reports_too_little_disk_space_before_it_makes_anything(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "free_megabytes", lambda path: 100)
    large = Recipe(made_from="", make=lambda job: None, seconds=1, megabytes=5000)
    with pytest.raises(FailedError, match=r"has 0\.1 GiB free; 6\.8 GiB are needed"):
        up(Part("a", "a", "", registry=None, packages=large))
    assert not (home / "home" / "stamps").exists()


def test_installs_nothing_with_no_install(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_INSTALL", "1")
    monkeypatch.setattr(machine, "missing", lambda commands: ["mmdebstrap"])
    with pytest.raises(FailedError, match="not installed: mmdebstrap"):
        up(part(home, "a"))


def test_the_ledger_records_each_object_once(home: Path) -> None:
    ledger.write("apt", "jq")
    ledger.write("apt", "jq")
    ledger.write("image", "a:1")
    assert ledger.names("apt") == ["jq"]
    assert ledger.read() == [("apt", "jq"), ("image", "a:1")]


@pytest.mark.parametrize(
    ("published", "sum_"),
    [
        ("abc\n", "abc"),
        ("abc  kind-linux-amd64\n", "abc"),
        ("1  other\nabc *tool\n2  another\n", "abc"),
        ("1  other\n2  another\n", ""),
        ("", ""),
    ],
)
def test_finds_the_checksum_of_a_file(published: str, sum_: str) -> None:
    name = "tool" if "tool" in published else "kind-linux-amd64"
    assert jobs._sum_of(name, published) == sum_
