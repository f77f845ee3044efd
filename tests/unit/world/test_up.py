"""Making parts: once, again when their inputs change, and on from where it was cut off."""

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
    """A shared folder and a source tree of the test's own."""
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
    """Makes a file of its name."""
    file = folder / name
    recipe = Recipe(
        made_from="", make=make or (lambda job: job.run("cp", "/dev/null", file)), seconds=1, needs=needs,
        inputs=inputs,
        advice="pray",
    )  # fmt: skip
    return Part(name, name, "", registry=None, packages=recipe, present=file.exists)


def up(*parts: Part, goal: str = "") -> list[str]:
    return list(ups.up([goal or parts[-1].name], {part.name: part for part in parts}, "packages"))


def test_a_second_run_makes_nothing(home: Path) -> None:
    parts = part(home, "a"), part(home, "b", "a")
    assert up(*parts) == ["a", "b"]
    assert up(*parts) == []


def test_a_changed_input_makes_it_again_and_what_needs_it(home: Path) -> None:
    (home / "recipe").write_text("1")
    parts = part(home, "a", inputs=("recipe",)), part(home, "b", "a"), part(home, "c")
    up(*parts, goal="b")
    (home / "recipe").write_text("2")
    assert up(*parts, goal="b") == ["a", "b"]


def test_what_is_gone_is_made_again_but_not_what_only_led_to_a_goal(home: Path) -> None:
    parts = part(home, "a"), part(home, "b", "a")
    up(*parts)
    (home / "a").unlink()
    assert up(*parts) == []
    (home / "b").unlink()
    assert up(*parts) == ["a", "b"]


def test_a_failure_says_which_part_the_end_of_its_log_and_what_to_try(home: Path) -> None:
    def fail(job: Job) -> None:
        job.run("sh", "-c", "echo disk is full >&2; exit 3")

    with pytest.raises(FailedError, match=r"b failed: `sh .*` ended with 3\n(.|\n)*disk is full") as error:
        up(part(home, "a"), part(home, "b", "a", make=fail))
    assert error.value.advice == "pray"
    assert up(part(home, "a"), part(home, "b", "a")) == ["b"]


def test_a_failure_ends_what_runs_beside_it(home: Path) -> None:
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


def test_what_was_cut_off_is_made_again(home: Path) -> None:
    """Killed in the middle, with its file there but unfinished."""
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
    done = subprocess.run([sys.executable, "-c", script], env=env, cwd=root, check=False)
    assert done.returncode == -9
    assert (home / "a").read_text() == "half"
    assert up(part(home, "a")) == ["a"]
    assert (home / "a").read_text() == ""


def test_two_clones_wait_for_one_another(home: Path) -> None:
    alone = []

    def make(job: Job) -> None:
        alone.append(1)
        time.sleep(0.2)
        assert alone == [1]
        alone.pop()
        (home / "a").write_text("")

    parts = part(home, "a", make=make), part(home, "b", make=make)
    threads = [threading.Thread(target=up, args=(one,)) for one in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (home / "a").exists()


def test_too_little_disk_is_told_before_anything_is_made(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "free_megabytes", lambda path: 100)
    large = Recipe(made_from="", make=lambda job: None, seconds=1, megabytes=5000)
    with pytest.raises(FailedError, match=r"has 0\.1 GiB free; 6\.8 GiB are needed"):
        up(Part("a", "a", "", registry=None, packages=large))
    assert not (home / "home" / "stamps").exists()


def test_nothing_is_installed_where_that_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_INSTALL", "1")
    monkeypatch.setattr(machine, "missing", lambda commands: ["mmdebstrap"])
    with pytest.raises(FailedError, match="not installed: mmdebstrap"):
        up(part(home, "a"))


def test_the_ledger_holds_each_thing_once(home: Path) -> None:
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
def test_checksums(published: str, sum_: str) -> None:
    name = "tool" if "tool" in published else "kind-linux-amd64"
    assert jobs._sum_of(name, published) == sum_
