"""The language model on a real Triton, with its client: streams, cancellation, limits, metrics."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc

from model_images.language import copy
from model_images.support import LANGUAGE, Server, docker, series, serving
from model_images.test_small_models import module
from support.api import eventually, note

pytestmark = pytest.mark.server

CLIENT = LANGUAGE / "client" / "chat.py"
RATE = 20
"""The tokens per second of the model `slow`. Its longest answer takes more than three minutes."""
SLOTS = 2
LONG = {"max_tokens": 4096}
PROTOCOLS = ["http", "grpc"]
chat = module("language/client/chat")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serves the sample; `slow` with a limit and two slots; and has two copies that can't load."""
    root = tmp_path_factory.mktemp("language")
    root.chmod(0o755)
    root.parent.chmod(0o755)
    copy(root / "language")
    copy(root / "slow", tokens_per_second=str(RATE), max_num_seqs=str(SLOTS))
    copy(root / "stopped", tokens_per_second="0")
    copy(root / "half", max_num_seqs="1.5")
    with serving(
        root, options=("--model-control-mode=explicit", "--load-model=language", "--load-model=slow")
    ) as running:
        yield running


def pieces(server: Server, text: str, protocol: str = "http", model: str = "language", **sampling: Any) -> Any:
    return chat.STREAMS[protocol](text, sampling, getattr(server, protocol), model)


def text_of(server: Server, text: str, protocol: str = "http", model: str = "language", **sampling: Any) -> str:
    return "".join(pieces(server, text, protocol, model, **sampling))


def post(server: Server, path: str, body: dict[str, Any]) -> tuple[int, str]:
    """Returns the status and the text of the answer."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://{server.http}/v2/{path}", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def generate(server: Server, text: str, **sampling: Any) -> str:
    """Returns the answer without a stream."""
    body = {"text_input": text, "sampling_parameters": json.dumps(sampling)}
    status, answer = post(server, "models/language/generate", body)
    assert status == 200, answer
    return str(json.loads(answer)["text_output"])


def metrics(server: Server, model: str) -> dict[str, float]:
    """Returns the model's own metrics without buckets, by the name after `vllm:`."""
    labels = f'{{model="{model}",version="1"}}'
    own = {name.removeprefix("vllm:"): value for name, value in series(server, "vllm:").items()}
    return {name.removesuffix(labels): value for name, value in own.items() if name.endswith(labels)}


def state(server: Server, model: str = "slow") -> tuple[float, float]:
    """Returns the requests that run and that wait."""
    figures = metrics(server, model)
    note("the metrics", figures)
    return figures["num_requests_running"], figures["num_requests_waiting"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_token_comes_in_a_piece_of_its_own(server: Server, protocol: str) -> None:
    received = list(pieces(server, "Once there was", protocol, max_tokens=40))
    assert [len(piece) for piece in received] == [1] * 40


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tokens_come_while_the_answer_is_still_being_written(server: Server, protocol: str) -> None:
    with closing(pieces(server, "Once", protocol, "slow", **LONG)) as stream:
        for _ in range(5):
            next(stream)
        assert state(server) == (1, 0)
    eventually(lambda: state(server) == (0, 0), 60)


def test_the_events_have_the_form_of_triton(server: Server) -> None:
    body = {"text_input": "Once", "stream": True, "sampling_parameters": '{"max_tokens": 3}'}
    status, answer = post(server, "models/language/generate_stream", body)
    assert status == 200
    events = [json.loads(line.removeprefix("data:")) for line in answer.splitlines() if line]
    assert [event.keys() for event in events] == [{"model_name", "model_version", "text_output"}] * 3


def test_all_ways_give_the_same_text_for_the_same_seed(server: Server) -> None:
    texts = [generate(server, "Once", seed=5, max_tokens=80)]
    texts += [text_of(server, "Once", protocol, seed=5, max_tokens=80) for protocol in PROTOCOLS]
    assert len(set(texts)) == 1
    assert len(texts[0]) == 80
    assert generate(server, "Once", seed=6, max_tokens=80) != texts[0]


def test_without_a_seed_the_texts_differ(server: Server) -> None:
    assert len({generate(server, "Once there was a", max_tokens=100) for _ in range(3)}) == 3


def test_without_stream_the_endpoint_for_streams_sends_one_event(server: Server) -> None:
    _, answer = post(server, "models/language/generate_stream", {"text_input": "Once"})
    (event,) = [json.loads(line.removeprefix("data:")) for line in answer.splitlines() if line]
    assert len(event["text_output"]) == 64


def test_greedy_texts_are_the_same_also_among_other_requests(server: Server) -> None:
    alone = generate(server, "One day", temperature=0, max_tokens=200)
    with ThreadPoolExecutor(12) as threads:
        greedy = [threads.submit(generate, server, "One day", temperature=0, max_tokens=200, top_k=k) for k in range(6)]
        others = [threads.submit(generate, server, "She liked" * k, max_tokens=150) for k in range(1, 7)]
        assert {future.result(timeout=300) for future in greedy} == {alone}
        assert [len(future.result(timeout=300)) for future in others] == [150] * 6


def test_a_stop_string_ends_the_text_and_is_not_in_it(server: Server) -> None:
    text = generate(server, "Once", temperature=0, max_tokens=100)
    stop = text[50:55]
    before = text[: text.index(stop)]
    for protocol in PROTOCOLS:
        assert text_of(server, "Once", protocol, temperature=0, max_tokens=100, stop=stop) == before
    assert generate(server, "Once", temperature=0, max_tokens=100, stop=["#", stop, text[60:70]]) == before


@pytest.mark.parametrize("count", [1, 2, 300])
def test_the_text_has_max_tokens_characters(server: Server, count: int) -> None:
    assert len(generate(server, "Good morning", max_tokens=count)) == count
    assert len(text_of(server, "Good morning", max_tokens=count)) == count


def test_a_requests_own_parameters_work_too(server: Server) -> None:
    body = {"text_input": "Once", "max_tokens": 7, "temperature": 0.0}
    _, answer = post(server, "models/language/generate", body)
    assert json.loads(answer)["text_output"] == generate(server, "Once", temperature=0, max_tokens=7)


BAD = [
    ("Once", {"max_tokens": 0}, "sampling_parameters: max_tokens must be a whole number from 1 to 4096, not 0"),
    ("Once", {"temperature": 3}, "sampling_parameters: temperature must be a number from 0 to 2, not 3"),
    ("Once", {"stop": [""]}, "sampling_parameters: stop must be a string that isn't empty"),
    ("Once", {"max_token": 1}, "sampling_parameters has the unknown field 'max_token'; it can have max_tokens"),
    ("", {}, "text_input is empty; send the start of a text"),
    ("x" * 257, {}, "text_input has 257 characters; the model reads at most 256"),
]


@pytest.mark.parametrize(("text", "sampling", "message"), BAD)
def test_refuses_bad_requests(server: Server, text: str, sampling: dict[str, Any], message: str) -> None:
    before = metrics(server, "language")
    for protocol in PROTOCOLS:
        with pytest.raises(chat.ChatError, match=re.escape(message)):
            text_of(server, text, protocol, **sampling)
    body = {"text_input": text, "sampling_parameters": json.dumps(sampling)}
    status, answer = post(server, "models/language/generate", body)
    assert (status, message in json.loads(answer)["error"]) == (400, True)
    assert metrics(server, "language") == before


def test_triton_counts_a_stream_that_ends_with_an_error_as_a_success(server: Server) -> None:
    counters = ('nv_inference_request_success{model="language"', 'nv_inference_request_failure{model="language"')

    def counts() -> list[float]:
        return [sum(series(server, counter).values()) for counter in counters]

    before = counts()
    with pytest.raises(chat.ChatError):
        text_of(server, "")
    status, _ = post(server, "models/language/generate", {"text_input": ""})
    assert status == 400
    expected = [before[0] + 2, before[1]]
    eventually(lambda: counts() == expected, 30, lambda: (before, counts()))


def test_refuses_bad_json(server: Server) -> None:
    for text, message in (("{", "is no JSON"), ("[]", "must be a JSON object")):
        body = {"text_input": "Once", "sampling_parameters": text}
        status, answer = post(server, "models/language/generate", body)
        assert (status, message in json.loads(answer)["error"]) == (400, True)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("stopped", "the parameter tokens_per_second in config.pbtxt must be a number above 0, not '0'"),
        ("half", "the parameter max_num_seqs in config.pbtxt must be a whole number above 0, not '1.5'"),
    ],
)
def test_does_not_load_with_bad_parameters(server: Server, model: str, message: str) -> None:
    status, answer = post(server, f"repository/models/{model}/load", {})
    assert (status, message in json.loads(answer)["error"]) == (400, True)


def test_requests_run_together_up_to_the_limit_and_others_wait(server: Server) -> None:
    streams = [pieces(server, "Once", protocol, "slow", **LONG) for protocol in ("http", "grpc", "http", "grpc")]
    with ThreadPoolExecutor(4) as threads:
        first = [threads.submit(next, stream) for stream in streams[:2]]
        assert all(len(future.result(timeout=300)) == 1 for future in first)
        late = [threads.submit(next, stream) for stream in streams[2:]]
        eventually(lambda: state(server) == (SLOTS, 2), 60)
        assert not any(future.done() for future in late)
        # Both running requests get tokens in turn.
        for _ in range(3):
            assert [len(next(stream)) for stream in streams[:2]] == [1, 1]
        # A request that waits starts in the slot of one that has left.
        streams[0].close()
        eventually(lambda: any(future.done() for future in late), 60)
        assert state(server) == (SLOTS, 1)
        streams[1].close()
        assert all(len(future.result(timeout=300)) == 1 for future in late)
    for stream in streams:
        stream.close()
    eventually(lambda: state(server) == (0, 0), 60)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_client_that_leaves_frees_its_slot(server: Server, protocol: str) -> None:
    """On a free machine, in less than 0.1 s."""
    stream = pieces(server, "Once", protocol, "slow", **LONG)
    next(stream)
    assert state(server) == (1, 0)
    before = metrics(server, "slow")
    stream.close()
    eventually(lambda: state(server) == (0, 0), 60)
    after = metrics(server, "slow")
    assert after["gpu_cache_usage_perc"] == 0
    # The answer was ended, not completed.
    assert after["e2e_request_latency_seconds_count"] == before["e2e_request_latency_seconds_count"]
    assert after["generation_tokens_total"] - before["generation_tokens_total"] < LONG["max_tokens"] / 2


def test_a_grpc_client_that_leaves_the_queue_is_not_served(server: Server) -> None:
    streams = [pieces(server, "Once", "http", "slow", **LONG) for _ in range(SLOTS)]
    for stream in streams:
        next(stream)
    text = tritonclient.grpc.InferInput("text_input", [1], "BYTES")
    text.set_data_from_numpy(np.array([b"Once"], np.object_))
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: None)
        client.async_stream_infer("slow", [text])
        eventually(lambda: state(server) == (SLOTS, 1), 60)
        prompts = metrics(server, "slow")["prompt_tokens_total"]
        client.stop_stream(cancel_requests=True)
        eventually(lambda: state(server) == (SLOTS, 0), 60)
    for stream in streams:
        stream.close()
    eventually(lambda: state(server) == (0, 0), 60)
    assert metrics(server, "slow")["prompt_tokens_total"] == prompts


def test_triton_does_not_notice_that_an_http_client_has_left_before_it_sends_something(server: Server) -> None:
    """If this fails because Triton notices it, remove the restriction from docs/models.md."""
    before = metrics(server, "slow")
    connection = http.client.HTTPConnection(server.http)
    body = json.dumps({"text_input": "Once", "max_tokens": 40})
    connection.request("POST", "/v2/models/slow/generate", body, {"Content-Type": "application/json"})
    eventually(lambda: state(server) == (1, 0), 60)
    connection.close()
    eventually(lambda: state(server) == (0, 0), 60)
    after = metrics(server, "slow")
    assert after["generation_tokens_total"] - before["generation_tokens_total"] == 40
    assert after["e2e_request_latency_seconds_count"] - before["e2e_request_latency_seconds_count"] == 1


NAMES = {
    *("prompt_tokens_total", "generation_tokens_total", "num_requests_running", "num_requests_waiting"),
    "gpu_cache_usage_perc",
    *(
        f"{name}_{part}"
        for name in (
            *("time_to_first_token_seconds", "time_per_output_token_seconds", "e2e_request_latency_seconds"),
            *("request_queue_time_seconds", "request_prompt_tokens", "request_generation_tokens"),
        )
        for part in ("count", "sum")
    ),
}


def test_the_metrics_count_what_the_clients_receive(server: Server) -> None:
    before = metrics(server, "language")
    assert before.keys() == NAMES
    began = time.monotonic()
    starts = ["One", "Good morning", "She liked to", "x" * 200]
    with ThreadPoolExecutor(4) as threads:
        jobs = [
            threads.submit(text_of, server, start, PROTOCOLS[k % 2], max_tokens=30 * (k + 1))
            for k, start in enumerate(starts)
        ]
        received = [future.result(timeout=300) for future in jobs]
    received.append(generate(server, "Two", max_tokens=25))
    took = time.monotonic() - began
    after = metrics(server, "language")
    grown = {name: after[name] - before[name] for name in NAMES}
    tokens, prompt = sum(map(len, received)), len("".join(starts)) + 3
    assert tokens == 300 + 25
    expected = {
        "prompt_tokens_total": prompt,
        "generation_tokens_total": tokens,
        "request_prompt_tokens_sum": prompt,
        "request_generation_tokens_sum": tokens,
        "time_to_first_token_seconds_count": 5,
        "time_per_output_token_seconds_count": tokens - 5,
        "e2e_request_latency_seconds_count": 5,
        "request_queue_time_seconds_count": 5,
        "request_prompt_tokens_count": 5,
        "request_generation_tokens_count": 5,
        "num_requests_running": 0,
        "num_requests_waiting": 0,
        "gpu_cache_usage_perc": 0,
    }
    assert {name: grown[name] for name in expected} == expected
    # The parts of a request's time add up to the whole.
    parts = grown["time_to_first_token_seconds_sum"] + grown["time_per_output_token_seconds_sum"]
    assert parts == pytest.approx(grown["e2e_request_latency_seconds_sum"], rel=1e-3)
    assert 0 < grown["request_queue_time_seconds_sum"] < grown["e2e_request_latency_seconds_sum"] < 5 * took


def test_the_cache_gauge_is_the_share_of_the_windows(server: Server) -> None:
    with closing(pieces(server, "x" * 100, "http", "slow", **LONG)) as stream:
        next(stream)
        used = metrics(server, "slow")["gpu_cache_usage_perc"]
        # At least the prompt, at most the window of this one request.
        assert 100 / 256 / SLOTS - 0.001 <= used <= 1 / SLOTS
    eventually(lambda: state(server) == (0, 0), 60)


def rates(server: Server, seconds: float) -> tuple[float, float]:
    """Returns the tokens per second of two streams at once: as the clients see it, and by the counter."""
    streams = [pieces(server, "Once", protocol, "slow", **LONG) for protocol in PROTOCOLS]
    for stream in streams:
        next(stream)
    first, began = metrics(server, "slow")["generation_tokens_total"], time.monotonic()
    tokens = 0
    while time.monotonic() - began < seconds:
        tokens += sum(len(next(stream)) for stream in streams)
    took = time.monotonic() - began
    counted = metrics(server, "slow")["generation_tokens_total"] - first
    for stream in streams:
        stream.close()
    eventually(lambda: state(server) == (0, 0), 60)
    note("tokens per second", (tokens / took, counted / took))
    return tokens / took, counted / took


def test_tokens_per_second_is_the_limit_of_all_requests_together(server: Server) -> None:
    """Measures again on a busy machine, on which it may be slower. It must never be faster."""

    def holds() -> bool:
        received, counted = rates(server, 4)
        assert counted <= 1.2 * RATE
        return received >= 0.8 * RATE and counted >= 0.8 * RATE

    eventually(holds, 60)


@pytest.mark.parametrize("options", [[], ["--grpc"]])
def test_the_command_line_client_shows_the_text_and_the_figures(server: Server, options: list[str]) -> None:
    url = server.grpc if options else server.http
    words = ["--seed", "3", "--max-tokens", "90", "--temperature", "0.7", "--top-k", "5", "--stop", "#", "Once there"]
    command = [sys.executable, str(CLIENT), "--url", url, *options, *words]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    text = generate(server, "Once there", seed=3, max_tokens=90, temperature=0.7, top_k=5, stop="#")
    assert result.stdout == f"Once there{text}"
    assert re.search(r"^90 tokens, the first after \d+ ms, then \d+\.\d tokens/s$", result.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--url", "{http}", "--max-tokens", "0"], "max_tokens must be a whole number"),
        (["--url", "{grpc}", "--grpc", "--max-tokens", "0"], "max_tokens must be a whole number"),
        (["--url", "{http}", "--model", "absent"], ": 404: Request for unknown model: 'absent' is not found"),
        (["--url", "{grpc}", "--grpc", "--model", "absent"], "Request for unknown model: 'absent' is not found"),
        (["--url", "127.0.0.1:1"], "127.0.0.1:1: [Errno 111] Connection refused"),
        (["--url", "127.0.0.1:1", "--grpc"], "127.0.0.1:1: failed to connect"),
    ],
)
def test_the_command_line_client_says_what_is_wrong(server: Server, options: list[str], message: str) -> None:
    arguments = [option.format(http=server.http, grpc=server.grpc) for option in options]
    result = subprocess.run(
        [sys.executable, str(CLIENT), *arguments, "Once"], capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_the_image_contains_only_the_repository() -> None:
    image = docker("build", "--quiet", str(LANGUAGE)).splitlines()[-1]
    (layer,) = json.loads(docker("inspect", image))[0]["RootFS"]["Layers"]
    assert layer
    assert int(docker("inspect", "--format={{.Size}}", image)) < 2**20


def model_state(server: Server, model: str) -> str:
    _, answer = post(server, "repository/index", {})
    models = {entry["name"]: entry for entry in json.loads(answer)}
    note("the index", models)
    return f"{models[model].get('state')}: {models[model].get('reason')}"


def test_a_model_that_is_unloaded_ends_after_its_open_streams(server: Server) -> None:
    """Triton 2.51 calls finalize only when all answers are complete."""
    with closing(pieces(server, "Once", "grpc", "slow", max_tokens=60)) as stream:
        next(stream)
        assert post(server, "repository/models/slow/unload", {})[0] == 200
        assert len(list(stream)) == 59
    eventually(lambda: model_state(server, "slow") == "UNAVAILABLE: unloaded", 60)
    assert post(server, "repository/models/slow/load", {})[0] == 200
    assert len(text_of(server, "Once", "http", "slow", max_tokens=3)) == 3


def test_the_client_reports_a_server_that_ends_before_the_answer(server: Server) -> None:
    """The last test, because it ends the server."""
    streams = [pieces(server, "Once", protocol, "slow", **LONG) for protocol in PROTOCOLS]
    for stream in streams:
        next(stream)
    docker("kill", server.container)
    for stream in streams:
        with pytest.raises(chat.ChatError, match=r"broken off|Socket closed|Connection reset"):
            list(stream)
