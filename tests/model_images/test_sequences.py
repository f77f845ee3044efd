"""Sequences on a real Triton, with the sample client: pauses, slots, and a server that stops."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tritonclient.grpc import InferenceServerClient

from model_images.support import MODEL_IMAGES, Server, docker, series, serving
from model_images.test_small_models import module
from triton_repository_check import versions

pytestmark = pytest.mark.server

REPOSITORY = MODEL_IMAGES / "accumulator" / "repository"
CLIENT = MODEL_IMAGES / "accumulator" / "client" / "sequences.py"
SLOTS = 2
sequences = module("accumulator/client/sequences")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serves the sample with fewer slots, and a copy with Triton's default for pauses."""
    root = tmp_path_factory.mktemp("sequences")
    root.chmod(0o755)
    root.parent.chmod(0o755)
    settings = (REPOSITORY / "accumulator" / "config.pbtxt").read_text()
    few = settings.replace("max_candidate_sequences: 32", f"max_candidate_sequences: {SLOTS}")
    write(root / "accumulator", few)
    hasty = settings.replace("max_sequence_idle_microseconds: 60000000", "").replace('"accumulator"', '"hasty"')
    write(root / "hasty", hasty)
    with serving(root) as running:
        yield running


def write(folder: Path, settings: str) -> None:
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(settings)
    (folder / "1" / "model.py").write_text((REPOSITORY / "accumulator" / "1" / "model.py").read_text())


def address(server: Server, protocol: str) -> str:
    return server.grpc if protocol == "grpc" else server.http


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_adds_up_each_sequence(server: Server, protocol: str) -> None:
    url = address(server, protocol)
    first, other = (sequences.Sequence([url], value, protocol) for value in (1, 100))
    assert [first.send(2).sum, other.send(200).sum, first.send(3).sum] == [3, 300, 6]
    assert [first.send(4, end=True).sum, other.send(300, end=True).sum] == [10, 600]
    with pytest.raises(sequences.SequenceLostError, match="must specify the START flag"):
        first.send(5)
    first.close()
    other.close()


@pytest.mark.parametrize("options", [[], ["--http"]])
def test_the_command_line_client_prints_the_sums(server: Server, options: list[str]) -> None:
    host, port = address(server, "http" if options else "grpc").split(":")
    command = [sys.executable, str(CLIENT), "--host", host, "--port", port, "--sequences", "2", *options, "1", "2", "3"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count('"sums": [1, 3, 6]') == 2


def test_by_default_a_sequence_ends_after_a_pause_of_a_second(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "MODEL", "hasty")
    sequence = sequences.Sequence([server.grpc], 1)
    time.sleep(3)
    with pytest.raises(sequences.SequenceLostError, match="must specify the START flag"):
        sequence.send(1)
    sequence.close()


def test_triton_tells_no_slots_but_waiting_sequences_are_pending(server: Server) -> None:
    """If this fails because Triton tells the slots in use, show them in the dashboards."""
    before = series(server, "nv_inference")
    opened = [sequences.Sequence([server.grpc], 1) for _ in range(SLOTS)]
    changed = {
        name.partition("{")[0] for name, value in series(server, "nv_inference").items() if before[name] != value
    }
    assert changed <= {
        *("nv_inference_request_success", "nv_inference_count", "nv_inference_exec_count"),
        *(f"nv_inference_{part}_duration_us" for part in
          ("request", "queue", "compute_input", "compute_infer", "compute_output")),
    }  # fmt: skip
    with InferenceServerClient(server.grpc) as client:
        (stats,) = client.get_inference_statistics("accumulator").model_stats
        assert not any("slot" in name or "sequence" in name for name in stats.DESCRIPTOR.fields_by_name)
    waiting = sequences._Grpc(server.grpc)
    flags = {"sequence_id": 77, "sequence_start": True, "sequence_end": True}
    threads = ThreadPoolExecutor(1)
    answer = threads.submit(waiting.send, 7, flags)
    pending = 'nv_inference_pending_request_count{model="accumulator",version="1"}'
    deadline = time.monotonic() + 30
    while not series(server)[pending] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert series(server)[pending] == 1
    # It gets the slot of a sequence that ends.
    opened[0].send(1, end=True)
    assert answer.result(timeout=30).sum == 7
    opened[1].send(1, end=True)
    for sequence in (*opened, waiting):
        sequence.close()


def refusal(server: Server, protocol: str) -> str:
    """Starts sequences until the server refuses one, and returns the reason.

    Triton never answers on a connection that came when it closed its port, so a timeout is no refusal.
    """
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            sequences.Sequence([address(server, protocol)], 1, protocol, end=True).close()
        except sequences.SequenceLostError as error:
            if "timed out" not in str(error):
                return str(error)
        time.sleep(0.1)
    return ""


def test_a_server_that_stops_finishes_open_sequences_and_refuses_new_ones(server: Server) -> None:
    """From 25.05 on, it finishes those over gRPC only while others over HTTP are open (server#7969)."""
    version = versions.parse(docker("exec", server.container, "printenv", "TRITON_SERVER_VERSION"))
    stream, http = sequences.Sequence([server.grpc], 1), sequences.Sequence([server.http], 1, "http")
    docker("kill", "--signal=TERM", server.container)
    assert "closed" in refusal(server, "http")
    assert [stream.send(2).sum, http.send(2).sum] == [3, 3]
    assert http.send(3, end=True).sum == 6
    http.close()
    # With the last HTTP connection closed, the models stop.
    refused = refusal(server, "grpc")
    if version < versions.of_release(25, 5):
        assert "stopped accepting new inference requests" in refused
        assert stream.send(3, end=True).sum == 6
    else:
        assert refused
        with pytest.raises(sequences.SequenceLostError, match="shutting down and has stopped accepting new requests"):
            stream.send(3, end=True)
    stream.close()
