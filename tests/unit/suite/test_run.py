"""Parts of the tests with a real pytest each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hack.suite import process, report, run
from hack.suite.parts import Part
from hack.world import settings

SKIPPED = "import pytest\n@pytest.mark.skip\ndef test_two():\n    pass\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("LOGS", "REPORTS"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(process, name, tmp_path / name)
    monkeypatch.setattr(process, "EVIDENCE_OF_SECOND_ROUND", tmp_path / "second-round")
    return tmp_path


def _part(folder: Path, name: str, code: str, **more: object) -> Part:
    file = folder / f"test_{name}.py"
    file.write_text(code)
    return Part(name, f"tests of {name}", "", paths=(str(file),), **more)  # type: ignore[arg-type]


def test_a_failed_part_hides_no_other(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = [
        _part(folder, "bad", "def test_sum():\n    assert 1 + 1 == 3, 'wrong'\ndef test_more():\n    pass\n"),
        _part(folder, "good", f"def test_one():\n    pass\n{SKIPPED}"),
        _part(folder, "broken", "import nowhere\n", lane="cluster"),
    ]
    results = run.Suite(parts).run()
    assert [(result.name, result.code, len(result.cases)) for result in results] == [
        ("bad", 1, 2), ("good", 0, 2), ("broken", 2, 1),
    ]  # fmt: skip
    words = report.text(results, folder / "nothing")
    assert "test_bad::test_sum\n  E       AssertionError: wrong" in words
    assert f"bad failed; its output: {folder}/LOGS/tests-bad" in words
    assert "No module named 'nowhere'" in words
    first, second, total = words.splitlines()[-3:]
    assert first.startswith("failed: ")
    assert first.endswith("test_bad::test_sum: AssertionError: wrong")
    assert second.startswith("failed: ")
    assert "broken" in second
    assert total == "2 passed, 2 failed, 0 unsteady, 1 skipped"
    told = capsys.readouterr().err
    assert "good: passed after" in told
    assert "bad: FAILED after" in told


# `first` returns whether its caller has run for the first time.
FAILS_ONCE = """
import pathlib, pytest
def first(name):
    mark = pathlib.Path(__file__).with_suffix("." + name)
    was_there = mark.exists()
    mark.touch()
    return not was_there
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_a_test_that_fails_and_then_passes_is_unsteady(folder: Path, workers: int) -> None:
    code = f"""{FAILS_ONCE}
@pytest.fixture
def world():
    if first("setup"): raise OSError("no world")
    yield
    if first("teardown"): raise OSError("not removed")
def test_chance(): assert not first("call"), "too slow"
def test_setup(world): pass
def test_teardown(world): pass
def test_good(): assert first("good"), "runs twice"
"""
    [result] = results = run.Suite([_part(folder, "chance", code, workers=workers)]).run()
    assert not result.failed
    assert {case.name.rpartition("::")[2] for case in result.unsteady} == {"test_chance", "test_setup", "test_teardown"}
    assert result.failures == ()
    words = report.text(results, folder / "nothing")
    assert "test_chance::test_chance (unsteady)" in words
    assert "AssertionError: too slow" in words
    *names, total = words.splitlines()[-4:]
    assert total == "1 passed, 0 failed, 3 unsteady, 0 skipped"
    logs = [folder / "LOGS" / name for name in ("tests-chance", "tests-chance-again")]
    assert all(line.startswith("unsteady: ") and line.endswith(" ".join(map(str, logs))) for line in names)
    assert "too slow" in logs[0].read_text()
    assert "3 passed" in logs[1].read_text()
    assert report.figures(results, 1.0)["passed"]


def test_a_test_that_fails_twice_is_a_failure_and_hides_no_unsteady_one(folder: Path) -> None:
    bad = f"{FAILS_ONCE}\ndef test_bad(): assert 0, 'wrong'\ndef test_chance(): assert not first('call')\n"
    results = run.Suite([_part(folder, "bad", bad), _part(folder, "good", "def test_one(): pass\n")]).run()
    assert [result.failed for result in results] == [True, False]
    first, second, total = report.text(results, folder / "nothing").splitlines()[-3:]
    assert first.startswith("unsteady: ")
    assert "test_bad::test_chance" in first
    assert second.startswith("failed: ")
    assert second.endswith("test_bad::test_bad: AssertionError: wrong")
    assert total == "1 passed, 1 failed, 1 unsteady, 0 skipped"


def test_a_test_that_is_skipped_the_second_time_is_a_failure(folder: Path) -> None:
    code = f"{FAILS_ONCE}\ndef test_skips():\n    assert not first('call')\n    pytest.skip('not now')\n"
    [result] = run.Suite([_part(folder, "skips", code)]).run()
    assert result.failed
    assert result.unsteady == ()


def test_many_failures_are_no_chance(folder: Path) -> None:
    tests = "".join(f"def test_{n}(): assert not first('{n}')\n" for n in range(report.MOST_AGAIN + 1))
    [result] = run.Suite([_part(folder, "many", FAILS_ONCE + tests)]).run()
    assert (result.failed, result.again, len(result.failures)) == (True, None, 6)
    assert report.text([result], folder / "nothing").splitlines()[-1] == "0 passed, 6 failed, 0 unsteady, 0 skipped"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_fixture_that_fails_many_tests_is_one_failure(folder: Path, workers: int) -> None:
    tests = "".join(f"def test_{n}(world): pass\n" for n in range(2 * report.MOST_AGAIN))
    code = f"""{FAILS_ONCE}
@pytest.fixture(scope="session")
def world():
    if first("setup"): raise OSError("no world")
{tests}"""
    [result] = run.Suite([_part(folder, "many", code, workers=workers)]).run()
    assert (result.failed, len(result.unsteady)) == (False, 2 * report.MOST_AGAIN)


def test_the_same_error_of_many_tests_is_many_failures(folder: Path) -> None:
    """In the call, and in set-ups of their own with other errors."""
    calls = "".join(f"def test_{n}(): assert not first('{n}'), 'wrong'\n" for n in range(report.MOST_AGAIN + 1))
    assert run.Suite([_part(folder, "calls", FAILS_ONCE + calls)]).run()[0].again is None
    code = f"""{FAILS_ONCE}
@pytest.fixture
def world(request):
    if first(request.node.name): raise OSError(request.node.name)
{"".join(f"def test_{n}(world): pass{chr(10)}" for n in range(report.MOST_AGAIN + 1))}"""
    assert run.Suite([_part(folder, "setups", code)]).run()[0].again is None


def test_the_failures_of_all_parts_count_together() -> None:
    def results(*counts: int) -> list[report.Result]:
        return [
            report.Result(f"part{k}", 1.0, 1 if count else 0, _cases(count, f"part{k}"), Path("log"))
            for k, count in enumerate(counts)
        ]

    assert report.has_second_round(results(2, 0, 3))
    assert not report.has_second_round(results(3, 3))
    assert not report.has_second_round(results(0, 0))


def _cases(failed: int, name: str) -> tuple[report.Case, ...]:
    failures = [report.Case(f"{name}::test_{n}", 1.0, ("E   wrong",)) for n in range(failed)]
    return (report.Case(f"{name}::test_good", 1.0), *failures)


def test_nothing_runs_again_if_a_part_has_ended_early(folder: Path) -> None:
    parts = [
        _part(folder, "chance", f"{FAILS_ONCE}\ndef test_chance(): assert not first('call')\n"),
        _part(folder, "killed", "import os\ndef test_end():\n    os.kill(os.getpid(), 9)\n"),
    ]
    assert [(result.failed, result.again) for result in run.Suite(parts).run()] == [(True, None), (True, None)]


def test_a_former_run_s_failures_don_t_run_again(folder: Path) -> None:
    def results(code: str) -> report.Result:
        return run.Suite([_part(folder, "fixed", code)]).run()[0]

    assert results("def test_old(): assert 0\ndef test_new(): pass\n").failed
    second = results(f"{FAILS_ONCE}\ndef test_old(): pass\ndef test_new(): assert not first('call')\n")
    assert second.again is not None
    assert [case.name.rpartition("::")[2] for case in second.again.cases] == ["test_new"]


def test_names_the_errors_of_an_exception_group(folder: Path) -> None:
    code = "def test_both():\n    raise ExceptionGroup('two', [ValueError('an odd number'), KeyError('name')])\n"
    words = report.text(run.Suite([_part(folder, "group", code)]).run(), folder / "nothing")
    assert "| ValueError: an odd number" in words
    assert "| KeyError: 'name'" in words
    assert words.splitlines()[-2].endswith("test_group::test_both: ValueError: an odd number")


def test_tells_a_failure_when_it_happens(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = _part(folder, "bad", "def test_sum():\n    assert 0\ndef test_more():\n    pass\n", workers=2)
    run.Suite([bad]).run()
    assert "test_bad.py::test_sum" in capsys.readouterr().err


def test_a_killed_pytest_is_a_failure(folder: Path) -> None:
    part = _part(folder, "killed", "import os\ndef test_end():\n    os.kill(os.getpid(), 9)\n")
    results = run.Suite([part]).run()
    assert results[0].failed
    words = report.text(results, folder / "nothing")
    assert "killed failed; its output" in words
    assert words.splitlines()[-1] == "0 passed, 0 failed, 0 unsteady, 0 skipped"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_ends_all_parts_with_their_fixtures(folder: Path, number: signal.Signals) -> None:
    code = (
        "import pathlib, time, pytest\n@pytest.fixture\ndef made():\n    yield\n"
        "    pathlib.Path(__file__).with_suffix('.removed').touch()\n"
        "def test_waits(made):\n    pathlib.Path(__file__).with_suffix('.began').touch()\n    time.sleep(600)\n"
    )
    _part(folder, "one", code)
    _part(folder, "two", code)
    program = (
        "import pathlib, signal, sys\nfrom hack.suite import process, run\nfrom hack.suite.parts import Part\n"
        # A shell's background jobs ignore SIGINT, and those of nohup SIGHUP.
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\nrun.take_signals()\n"
        "folder = pathlib.Path(sys.argv[1])\nprocess.LOGS = process.REPORTS = folder\n"
        "parts = [Part(n, n, '', lane, paths=(f'{folder}/test_{n}.py',)) for n, lane in\n"
        "         (('one', 'machine'), ('two', 'cluster'))]\nrun.Suite(parts).run()\n"
    )
    suite = subprocess.Popen([sys.executable, "-c", program, folder], cwd=settings.ROOT, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 600
    while not all((folder / f"test_{name}.began").exists() for name in ("one", "two")):
        assert time.monotonic() < deadline, "the tests don't begin"
        assert suite.poll() is None, "it has ended"
        time.sleep(0.1)
    suite.send_signal(number)
    assert suite.wait(600) != 0
    assert all((folder / f"test_{name}.removed").exists() for name in ("one", "two"))


def test_tests_don_t_see_the_users_cluster(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/home/user/.kube/config")
    code = "import os\ndef test_sees_none():\n    assert 'KUBECONFIG' not in os.environ\n"
    assert not run.Suite([_part(folder, "user", code)]).run()[0].failed


def test_the_tests_of_the_machine_let_the_cluster_compute_first(folder: Path) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    for lane, nice in (("machine", min(19, own + process.NICE)), ("cluster", own)):
        code = f"import os\ndef test_priority():\n    assert os.getpriority(os.PRIO_PROCESS, 0) == {nice}\n"
        assert not run.Suite([_part(folder, "priority", code, lane=lane)]).run()[0].failed, lane


def test_what_a_killed_pytest_leaves_ends(folder: Path) -> None:
    code = (
        "import os, pathlib, subprocess\ndef test_end():\n    left = subprocess.Popen(['sleep', '600'])\n"
        "    pathlib.Path(__file__).with_suffix('.pid').write_text(str(left.pid))\n    os.kill(os.getpid(), 9)\n"
    )
    run.Suite([_part(folder, "leaves", code)]).run()
    left = Path("/proc") / (folder / "test_leaves.pid").read_text() / "stat"
    assert not left.exists() or left.read_text().split()[2] == "Z"


def test_figures_name_the_slowest_tests() -> None:
    cases = tuple(report.Case(f"tests.a::test_{n}", float(n)) for n in range(20))
    results = [report.Result("unit", 12.34, 0, cases, Path("log")), report.Result("rules", 3.0, 1, (), Path("log"))]
    figures = report.figures(results, 15.06)
    assert (figures["seconds"], figures["tests"], figures["passed"]) == (15.1, 20, False)
    assert figures["parts"] == {"unit": 12.3, "rules": 3.0}
    assert list(figures["slowest"]) == [f"tests.a::test_{n}" for n in range(19, 9, -1)]  # type: ignore[call-overload]
