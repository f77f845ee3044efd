"""The program that makes one measurement with perf_analyzer. The outputs are from perf_analyzer 2.60, Triton 24.10."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

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


def result(code: int | None, output: str, table: str, expected: int) -> dict[str, Any]:
    return dict(measure.result(code, output, measure.of_table(table, output), expected))


def test_reads_latencies_in_seconds() -> None:
    assert result(0, OUTPUT, TABLE, 81) == {
        "requests": 80, "failures": 0, "sent": None, "latencies": {"latency": {"p50": 0.075732, "p99": 0.180513}}
    }  # fmt: skip


def test_reads_the_rate_that_was_sent_if_requests_were_delayed() -> None:
    assert result(0, OUTPUT + DELAYED, TABLE, 80)["sent"] == 31.5


def test_a_failure_has_perf_analyzers_words() -> None:
    failure = result(99, UNKNOWN, "", 80)
    assert (failure["failures"], failure["requests"], failure["latencies"]) == (1, 80, {})
    assert "Request for unknown model: 'nope' is not found" in failure["error"]
    assert result(99, FAILED, "", 80)["error"] == (
        "Failed to retrieve results from inference request. Thread [0] had error: failed to parse the request JSON "
        "buffer: The document is empty. at 0"
    )
    assert result(139, "", "", 80)["error"] == "perf_analyzer exited with 139"


def test_a_measurement_that_takes_too_long_has_no_latency() -> None:
    assert result(None, OUTPUT, "", 80) == {
        "requests": 80, "failures": 0, "sent": None, "latencies": {}
    }  # fmt: skip


def exported(*requests: tuple[list[int], str]) -> str:
    """Returns an export of requests sent at 1 s, each with the times of its responses in ms and its last text."""
    rows = []
    for times, last in requests:
        texts = [*("a" for _ in times[1:]), last]
        rows.append({
            "timestamp": 10**9,
            "response_timestamps": [10**9 + time * 10**6 for time in times],
            "response_outputs": [{"text_output": text, "end": ""} for text in texts],
        })  # fmt: skip
    return json.dumps({"experiments": [{"requests": rows}], "version": "0.0.0", "service_kind": "triton"})


def test_reads_the_times_of_the_responses_of_streams() -> None:
    assert measure.of_export(exported(([100, 120, 160], "b"), ([50, 60], "b"), ([300], "b"))) == {
        "requests": 3, "failures": 0, "responses": 6,
        "latencies": {
            "latency": {"p50": 0.16, "p99": 0.3}, "ttft": {"p50": 0.1, "p99": 0.3}, "tpot": {"p50": 0.01, "p99": 0.03}
        },
    }  # fmt: skip


def test_an_empty_response_that_ends_a_stream_is_no_token() -> None:
    outcome = measure.of_export(exported(([100, 120, 160], ""), ([100, 120], "")))
    assert outcome["responses"] == 3
    assert outcome["latencies"] == {
        "latency": {"p50": 0.1, "p99": 0.12}, "ttft": {"p50": 0.1, "p99": 0.1}, "tpot": {"p50": 0.02, "p99": 0.02}
    }  # fmt: skip


def test_a_stream_without_a_response_is_a_failure() -> None:
    outcome = measure.of_export(exported(([100, 120], "b"), ([7], "")))
    assert (outcome["requests"], outcome["failures"], outcome["error"]) == (2, 1, "1 requests ended without a response")
    assert measure.of_export("") is None


def test_p99_is_the_smallest_value_that_99_of_100_do_not_exceed() -> None:
    assert measure.quantiles([float(k) for k in range(100, 0, -1)]) == {"p50": 50, "p99": 99}
    assert measure.quantiles([7.0]) == {"p50": 7, "p99": 7}


def test_a_stream_that_fails_without_an_end_is_a_failure() -> None:
    words = "  Detected decoupled model, using the first response for measuring latency\nFailed to retrieve results\n"
    failure = measure.result(None, OUTPUT + words, None, 80)
    assert failure["failures"] == 1
    assert "Failed to retrieve results" in failure["error"]
    assert "Detected" not in failure["error"]


def test_requests_are_sent_at_random_times_that_differ_between_measurements() -> None:
    times = measure.intervals(50, 400, seed=1)
    assert len(times) == 20_000
    assert mean(times) == pytest.approx(20_000, rel=0.001), "the rate isn't random"
    assert pstdev(times) == pytest.approx(20_000, rel=0.03), "exponential: the deviation is the mean"
    assert times != measure.intervals(50, 400, seed=2)
    assert times == measure.intervals(50, 400, seed=1)


def options(**more: object) -> argparse.Namespace:
    fixed = {"model": "m", "url": "u", "protocol": "http", "input_data": "random", "requests": 20, "streaming": False}
    return argparse.Namespace(**(fixed | more))


def test_sends_without_waiting_for_answers(tmp_path: Path) -> None:
    command = measure.command(options(), tmp_path, [5, 7])
    assert "--async" in command
    assert "--request-count=2" in command
    assert (tmp_path / "intervals").read_text() == "5\n7\n"


def test_streams_are_exported(tmp_path: Path) -> None:
    command = measure.command(options(protocol="grpc", streaming=True), tmp_path, [5, 7])
    assert {"--streaming", f"--profile-export-file={tmp_path}/profile.json"} <= set(command)
    assert "--streaming" not in measure.command(options(), tmp_path, [5, 7])


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
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


def test_a_hanging_perf_analyzer_is_killed(
    program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid\nexec sleep 600\n")
    monkeypatch.setattr(measure, "UNANSWERED_SECONDS", 1)
    assert measured(monkeypatch, capsys, "--rate=1000", "--seconds=0.1")["latencies"] == {}
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_a_perf_analyzer_that_hangs_after_an_error_is_a_failure(
    program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program.write_text("#!/bin/sh\necho 'Failed to retrieve results from inference request.'\nexec sleep 600\n")
    monkeypatch.setattr(measure, "ALIVE_SECONDS", 0.2)
    monkeypatch.setattr(measure, "UNANSWERED_SECONDS", 0.5)
    failure = measured(monkeypatch, capsys, "--seconds=120", "--streaming")
    assert (failure["failures"], failure["latencies"]) == (1, {})
    assert failure["error"] == "Failed to retrieve results from inference request."


def test_a_failing_perf_analyzer_is_a_result(
    program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program.write_text("#!/bin/sh\necho 'bad image' >&2\nexit 1\n")
    failure = measured(monkeypatch, capsys, "--rate=10", "--seconds=1")
    assert (failure["failures"], failure["error"]) == (1, "bad image")
