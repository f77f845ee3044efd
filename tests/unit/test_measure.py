"""The program that makes one measurement with perf_analyzer. The outputs are from perf_analyzer 2.60, Triton 24.10."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from pathlib import Path
from statistics import mean, pstdev

import pytest

FILE = Path(__file__).parents[2] / "perf_analyzer" / "measure.py"
SPEC = importlib.util.spec_from_file_location("measure", FILE)
assert SPEC
assert SPEC.loader
measure = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(measure)

TABLE = """\
Request Rate,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,\
Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency
44,39.9914,188,327,58031,39,20821,200,0,75732,132907,139570,180513
"""
OUTPUT = """\
*** Measurement Settings ***
  Batch size: 1
  Service Kind: TRITON
  Sending 80 benchmark requests
  Using asynchronous calls for inference

  Client:
    Request count: 80
    Throughput: 39.9914 infer/sec
"""
DELAYED = "    Avg send request rate: 31.50 infer/sec\n"
FAILED = """\
*** Measurement Settings ***
  Batch size: 1
  Service Kind: TRITON
  Sending 12458 benchmark requests
  Using asynchronous calls for inference

Failed to retrieve results from inference request.
Thread [0] had error: failed to parse the request JSON buffer: The document is empty. at 0
"""
"""From a server with thousands of waiting requests."""
UNKNOWN = "error: failed to get model metadata: Request for unknown model: 'nope' is not found\n"


def test_reads_latencies_in_seconds() -> None:
    found = measure.result(0, OUTPUT, TABLE, 81)
    assert found == {"requests": 80, "failures": 0, "sent": None, "p50": 0.075732, "p99": 0.180513}


def test_reads_the_rate_that_was_sent_if_requests_were_delayed() -> None:
    assert measure.result(0, OUTPUT + DELAYED, TABLE, 80)["sent"] == 31.5


def test_a_failure_has_perf_analyzers_words() -> None:
    found = measure.result(99, UNKNOWN, "", 80)
    assert (found["failures"], found["requests"], found["p99"]) == (1, 80, None)
    assert "Request for unknown model: 'nope' is not found" in found["error"]
    assert measure.result(99, FAILED, "", 80)["error"] == (
        "Failed to retrieve results from inference request. Thread [0] had error: failed to parse the request JSON "
        "buffer: The document is empty. at 0"
    )
    assert measure.result(139, "", "", 80)["error"] == "perf_analyzer exited with 139"


def test_a_measurement_that_takes_too_long_has_no_latency() -> None:
    assert measure.result(None, OUTPUT, "", 80) == {
        "requests": 80, "failures": 0, "sent": None, "p50": None, "p99": None
    }  # fmt: skip


def test_requests_are_sent_at_random_times_that_differ_between_measurements() -> None:
    times = measure.intervals(50, 400, seed=1)
    assert len(times) == 20_000
    assert mean(times) == pytest.approx(20_000, rel=0.03)
    assert pstdev(times) == pytest.approx(20_000, rel=0.03), "exponential: the deviation is the mean"
    assert times != measure.intervals(50, 400, seed=2)
    assert times == measure.intervals(50, 400, seed=1)


def options(**more: object) -> argparse.Namespace:
    return argparse.Namespace(model="m", url="u", protocol="http", input_data="random", requests=20, **more)


def test_sends_without_waiting_for_answers(tmp_path: Path) -> None:
    command = measure.command(options(), tmp_path, [5, 7])
    assert "--async" in command
    assert "--request-count=2" in command
    assert (tmp_path / "intervals").read_text() == "5\n7\n"


def test_without_a_rate_sends_one_request_after_the_other(tmp_path: Path) -> None:
    command = measure.command(options(), tmp_path, [])
    assert {"--concurrency-range=1", "--request-count=20"} <= set(command)
    assert "--async" not in command


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A perf_analyzer on PATH, which the test writes."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    file = tmp_path / "perf_analyzer"
    file.touch()
    file.chmod(0o755)
    return file


def measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    monkeypatch.setattr(sys, "argv", ["measure", "--model=m", "--url=u", "--protocol=http", *arguments])
    assert measure.main() == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_a_hanging_perf_analyzer_is_killed(
    program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid\nexec sleep 600\n")
    monkeypatch.setattr(measure, "UNANSWERED_SECONDS", 1)
    found = measured(monkeypatch, capsys, "--rate=1000", "--seconds=0.1")
    assert found["p99"] is None
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_a_failing_perf_analyzer_is_a_result(
    program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program.write_text("#!/bin/sh\necho 'bad image' >&2\nexit 1\n")
    found = measured(monkeypatch, capsys, "--rate=10", "--seconds=1")
    assert (found["failures"], found["error"]) == (1, "bad image")
