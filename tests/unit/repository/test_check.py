"""The repository check as the pod's init container runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.mutations import edit, remove
from triton_repository_check.check import main
from triton_repository_check.report import parse
from unit.repository.gen import good

OPERATOR = Path(__file__).parents[3] / "operator"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "triton_repository_check.check", *map(str, arguments)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(OPERATOR)},  # no LANG, as in a minimal image
        capture_output=True,
        text=True,
    )


def test_accepts_a_valid_repository(tmp_path):
    log = tmp_path / "log"
    result = run(good(tmp_path / "models"), "--shared-memory", 2**30, "--termination-log", log)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"{tmp_path}/models: 3 models, 0 errors, 0 warnings, 0 notes\n"
    report = parse(log.read_text())
    assert report is not None
    assert (report.ok, report.entrypoint, report.have, report.findings) == (True, "detect", 2**30, ())


def test_reports_errors_and_exits_with_1(tmp_path):
    log = tmp_path / "log"
    root = good(tmp_path / "models", edit("net/config.pbtxt", "max_batch_size", "max_batchsize"))
    result = run(root, "--entrypoint", "detect", "--load-models", "detect,", "--termination-log", log)
    assert result.returncode == 1
    assert result.stdout.splitlines()[0].startswith("net/config.pbtxt:2:1: error TR102: ")
    report = parse(log.read_text())
    assert report is not None
    assert not report.ok
    assert [(f.file, f.line, f.column) for f in report.findings if f.severity == "error"] == [
        ("net/config.pbtxt", 2, 1)
    ]


def test_exits_with_0_on_warnings(tmp_path, capsys):
    assert main([str(good(tmp_path)), "--shared-memory", "8000000"]) == 0
    assert "warning TR504" in capsys.readouterr().out


def test_compares_the_size_of_the_repository_with_the_limit_of_its_copy(tmp_path, capsys):
    root = good(tmp_path)
    (root / "net/1/weights").mkdir()
    with (root / "net/1/weights/shard").open("wb") as file:
        file.truncate(5 << 30)
    (root / "net/1/weights/twice").symlink_to("shard")
    assert main([str(root), f"--storage={6 << 30}"]) == 0
    assert main([str(root), f"--storage={2 << 30}"]) == 1
    assert "error TR514: the repository has 5121 MiB, and the server's limit of ephemeral storage is 2048 MiB" in (
        capsys.readouterr().out
    )


def test_the_threads_of_numpy_are_those_of_the_node_unless_the_spec_sets_them(tmp_path, capsys, monkeypatch):
    root = str(good(tmp_path, edit("pre/config.pbtxt", "count: 2", "count: 20")))
    for cores, more, words in (
        (8, [], ""),
        (48, [], "have about 1760 threads"),
        (96, [], "have about 2080 threads"),
        (96, ["--numpy-threads=1"], ""),
    ):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        assert main([root, "--shared-memory", str(2**30), *more]) == 0
        printed = capsys.readouterr().out
        assert words in printed
        assert ("note TR516" in printed) == bool(words)


def test_shared_memory_defaults_to_the_size_of_dev_shm(tmp_path):
    log = tmp_path / "log"
    main([str(good(tmp_path / "models")), "--termination-log", str(log)])
    report = parse(log.read_text())
    stat = os.statvfs("/dev/shm")
    assert report is not None
    assert report.have == stat.f_frsize * stat.f_blocks


@pytest.mark.parametrize(("containers", "size"), [(4, 3072), (12, 1024)])
def test_truncates_the_report_to_the_pods_termination_message_limit(tmp_path, containers, size):
    root = good(tmp_path / "models")
    for number in range(60):
        (root / f"nothing-{number}").mkdir()
    log = tmp_path / "log"
    assert main([str(root), "--termination-log", str(log), "--containers", str(containers)]) == 1
    assert size - 400 < log.stat().st_size <= size
    report = parse(log.read_text())
    assert report is not None
    assert len(report.findings) + report.truncated >= 60


def test_exits_with_the_result_even_if_the_report_cannot_be_written(tmp_path, capsys):
    assert main([str(good(tmp_path)), "--termination-log", str(tmp_path / "no" / "log")]) == 0
    assert "can't write the report" in capsys.readouterr().err


def test_accepts_empty_entrypoint_and_load_models(tmp_path):
    assert main([str(good(tmp_path)), "--entrypoint", "", "--load-models", ""]) == 0


def test_reports_a_missing_repository(tmp_path):
    result = run(tmp_path / "gone")
    assert result.returncode == 1
    assert "TR001" in result.stdout
    assert "Traceback" not in result.stderr


def test_reports_no_entrypoint_for_two_unconnected_models(tmp_path, capsys):
    log = tmp_path / "log"
    assert main([str(good(tmp_path / "m", remove("detect"))), "--termination-log", str(log)]) == 0
    report = parse(log.read_text())
    assert report is not None
    assert report.entrypoint is None
    assert "net, pre" in capsys.readouterr().out
