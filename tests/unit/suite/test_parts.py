"""Which tests each target of the Makefile runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from hack.suite.parts import GROUPS, PARTS, Part, chosen
from hack.world import settings
from hack.world.parts import GOALS


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Returns the markers of each test outside of tests/unit."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "marks.py").write_text(
        "def pytest_collection_finish(session):\n"
        "    for item in session.items:\n"
        "        print('MARKS', item.nodeid, *(mark.name for mark in item.iter_markers()))\n"
    )
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "marks", "tests", "--ignore=tests/unit"]
    result = subprocess.run(
        command, cwd=settings.ROOT, capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )  # fmt: skip
    lines = (line.split() for line in result.stdout.splitlines() if line.startswith("MARKS "))
    return {test: set(marks) for _, test, *marks in lines}


def _selects(part: Part, test: str, marks: set[str]) -> bool:
    if part.paths and not any(test.startswith((f"{path}/", f"{path}::")) for path in part.paths):
        return False
    # pytest's expressions are Python's.
    names = {name: name in marks for name in re.findall(r"\w+", part.select)}
    return bool(eval(part.select, {}, names))


def test_every_test_belongs_to_exactly_one_part_of_test_all(marked: dict[str, set[str]]) -> None:
    parts = {
        # Some parts run tests once more, on another version of Kubernetes.
        test: [part.name for part in chosen(["test-all"]) if not part.kubernetes and _selects(part, test, marks)]
        for test, marks in marked.items()
        if "docs" not in marks
    }
    assert len(parts) > 500
    assert {test: names for test, names in parts.items() if len(names) != 1} == {}


def test_the_way_through_kind_is_a_part_of_all_tests_there(marked: dict[str, set[str]]) -> None:
    path, whole = (
        {test for test, marks in marked.items() if any(_selects(part, test, marks) for part in chosen(names))}
        for names in (["path", "uninstall"], ["e2e"])
    )
    assert path
    assert path < whole


@pytest.mark.parametrize("name", [*GROUPS, *(part.name for part in PARTS)])
def test_the_world_knows_what_each_name_needs(name: str) -> None:
    assert name in GOALS


def test_refuses_an_unknown_part() -> None:
    with pytest.raises(ValueError, match="no such part: units; one of test, e2e, compat-triton, compat, test-all, u"):
        chosen(["units"])


def test_all_control_planes_may_be_of_another_release() -> None:
    assert {part.kubernetes for part in chosen(["compat"], kubernetes="v1.33.5")} == {"v1.33.5"}
    oldest, newest = chosen(["oldest", "newest"])
    assert (oldest.kubernetes, newest.kubernetes) == (settings.SUPPORTED[0], settings.SUPPORTED[-1])


def test_the_pure_properties_belong_to_the_long_form() -> None:
    [part] = chosen(["properties"], soak=True)
    assert (part.select, part.paths) == ("", ("tests/properties",))
    assert chosen(["unit"], soak=True) == chosen(["unit"])


def test_the_long_form_runs_every_test_that_has_one() -> None:
    (names,) = re.findall(r"SOAK=1 hack/test.sh (.*)", (settings.ROOT / "Makefile").read_text())
    folders = {path for part in chosen(names.split(), soak=True) for path in part.paths}
    tests = (settings.ROOT / "tests").rglob("test_*.py")
    longer = [file for file in tests if re.search(r"environ\.get\(.SOAK.\)", file.read_text())]
    assert len(longer) >= 3
    for file in longer:
        assert any(file.is_relative_to(settings.ROOT / folder) for folder in folders), file


def test_the_makefile_has_a_target_for_each_group() -> None:
    targets = re.findall(r"^([a-z0-9-]+):", (settings.ROOT / "Makefile").read_text(), re.MULTILINE)
    assert GROUPS.keys() <= set(targets)
