"""Operation of the detection repository on a real server: parameters, warm-up, queues, cancellation, metrics."""

import http.client
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import cv2
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from model_images.support import DETECTION, Server, series, serving

pytestmark = pytest.mark.server

# Changes of the files as a user makes them: other labels, a queue that a test can fill, and patience on a busy machine.
SETTINGS = {
    "max_queue_size: 64": "max_queue_size: 12",
    "default_timeout_microseconds: 5000000": "default_timeout_microseconds: 60000000",
}
IMAGES = 6  # in one request, of at most eight
STEPS = ("preprocess", "yolov5s", "postprocess")
FORWARD = "--http-header-forward-pattern=(confidence|iou|top_k)"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, list[int]]]:
    """Starts a server with other class names, a shorter queue, and headers that become parameters.

    Yields it with the number of inferences of each model before the first request.
    """
    repository = tmp_path_factory.mktemp("operated") / "repository"
    shutil.copytree(DETECTION / "repository", repository)
    (repository / "postprocess" / "1" / "labels.txt").write_text("kruh\nobdélník\ntrojúhelník\nhvězda\n")
    config = repository / "preprocess" / "config.pbtxt"
    for old, new in SETTINGS.items():
        assert old in config.read_text()
        config.write_text(config.read_text().replace(old, new))
    for path in (repository.parent, *repository.rglob("*"), repository):
        path.chmod(0o755)
    with serving(repository, options=[FORWARD]) as running:
        yield running, [inferences(running, model) for model in STEPS]


@pytest.fixture(scope="module")
def operated(fresh: tuple[Server, list[int]]) -> Server:
    return fresh[0]


@pytest.fixture(scope="module")
def jpeg() -> bytes:
    return (DETECTION / "samples" / "square.jpg").read_bytes()


@pytest.fixture(scope="module")
def slow() -> bytes:
    """Returns a small file that takes a third of a second or more to decode."""
    return cv2.imencode(".jpg", np.full((6000, 6000, 3), 90, np.uint8), [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1].tobytes()


def tensor(module: Any, images: list[bytes]) -> Any:
    model_input = module.InferInput("IMAGE", [len(images), 1], "BYTES")
    model_input.set_data_from_numpy(np.array(images, np.object_).reshape(-1, 1))
    return model_input


def ask(server: Server, image: bytes, **parameters: Any) -> list[dict[str, Any]]:
    """Sends an image over HTTP and returns the detections."""
    with tritonclient.http.InferenceServerClient(server.http) as client:
        answer = client.infer("detection", [tensor(tritonclient.http, [image])], parameters=parameters)
    return json.loads(answer.as_numpy("DETECTIONS")[0, 0])["detections"]  # type: ignore[no-any-return]


def post(server: Server, body: bytes, **headers: str) -> tuple[int, str]:
    """Sends plain bytes. Returns the status and the text of the response."""
    host, port = server.http.split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=120)
    sent = {"Inference-Header-Content-Length": "0", **headers}
    connection.request("POST", "/v2/models/detection/infer", body, sent)
    answer = connection.getresponse()
    content = answer.read().decode(errors="replace")
    connection.close()
    return answer.status, content


def test_a_request_can_set_thresholds(operated: Server, jpeg: bytes) -> None:
    usual = ask(operated, jpeg)
    assert len(usual) >= 3
    line = (usual[0]["score"] + usual[1]["score"]) / 2
    assert ask(operated, jpeg, confidence=line) == usual[:1]
    assert ask(operated, jpeg, top_k=2) == usual[:2]
    assert len(ask(operated, jpeg, confidence=0.001)) > len(usual)
    assert len(ask(operated, jpeg, iou=1)) > len(usual)
    assert ask(operated, jpeg) == usual, "a request's thresholds affected a later request"


def test_thresholds_apply_to_one_request_in_a_batch(operated: Server, jpeg: bytes) -> None:
    usual = ask(operated, jpeg)
    with ThreadPoolExecutor(10) as threads:
        answers = list(threads.map(lambda k: ask(operated, jpeg, top_k=1 + k % 3), range(30)))
    assert [len(answer) for answer in answers] == [min(len(usual), 1 + k % 3) for k in range(30)]


def test_accepts_thresholds_over_grpc_and_in_headers(operated: Server, jpeg: bytes) -> None:
    usual = ask(operated, jpeg)
    with tritonclient.grpc.InferenceServerClient(operated.grpc) as client:
        parameters = {"top_k": 1, "confidence": "0.3"}
        answer = client.infer("detection", [tensor(tritonclient.grpc, [jpeg])], parameters=parameters)
    assert json.loads(answer.as_numpy("DETECTIONS")[0, 0])["detections"] == usual[:1]
    status, text = post(operated, jpeg, top_k="2")
    assert status == 200
    assert text.count('"box"') == 2


@pytest.mark.parametrize("grpc", [False, True])
def test_the_client_sends_thresholds(operated: Server, grpc: bool) -> None:
    program = [sys.executable, DETECTION / "client" / "detect.py", "--top-k=2", "--confidence=0.3"]
    url = ["--grpc", f"--url={operated.grpc}"] if grpc else [f"--url={operated.http}"]
    sample = DETECTION / "samples" / "square.jpg"
    result = subprocess.run([*program, *url, sample], capture_output=True, text=True, check=True)
    assert len(json.loads(result.stdout)["detections"]) == 2


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"confidence": 1.5}, "confidence must be a number from 0 to 1, not 1.5"),
        ({"iou": "much"}, 'iou must be a number from 0 to 1, not "much"'),
        ({"top_k": 1000}, "top_k must be a whole number from 1 to 300, not 1000"),
    ],
)
def test_an_invalid_threshold_is_a_400(operated: Server, jpeg: bytes, parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(InferenceServerException) as caught:
        ask(operated, jpeg, **parameters)
    assert caught.value.status() == "400"
    assert words in caught.value.message()


def test_a_request_without_images_fails_without_side_effects(operated: Server, jpeg: bytes) -> None:
    with tritonclient.http.InferenceServerClient(operated.http) as client:
        empty = tritonclient.http.InferInput("IMAGE", [0, 1], "BYTES")
        empty.set_data_from_numpy(np.empty((0, 1), np.object_))
        with pytest.raises(InferenceServerException):
            client.infer("detection", [empty])
    assert ask(operated, jpeg)


def test_class_names_come_from_the_labels_file(operated: Server, jpeg: bytes) -> None:
    names = ["kruh", "obdélník", "trojúhelník", "hvězda"]
    assert all(detection["label"] == names[detection["class_id"]] for detection in ask(operated, jpeg))


def test_every_model_is_warm_before_the_first_request(fresh: tuple[Server, list[int]]) -> None:
    """Triton counts a successful warm-up as an inference."""
    assert fresh[1] == [1, 1, 1]


def test_refuses_requests_immediately_if_the_queue_is_full(operated: Server, slow: bytes, jpeg: bytes) -> None:
    with busy(operated, slow) as held, ThreadPoolExecutor(60) as threads:
        outcomes = list(threads.map(lambda _: (*post(operated, jpeg), held.done()), range(60)))
    answers = [status for status, *_ in outcomes if status == 200]
    refusals = [outcome for outcome in outcomes if outcome[0] != 200]
    assert len(answers) >= 11, "12 fit into the queue, and the test's own is one of them"
    assert len(refusals) >= 10
    assert all(status == 503 and "Exceeds maximum queue size" in text for status, text, _ in refusals)
    assert not refusals[0][2], "a refusal took as long as the images before it"
    assert len(ask(operated, jpeg)) >= 3


def test_refuses_requests_that_wait_longer_than_their_timeout(operated: Server, slow: bytes, jpeg: bytes) -> None:
    """Half of the requests behind slow ones have a timeout. Each is answered within it, or gets a 503."""
    patience = 0.25
    with busy(operated, slow), ThreadPoolExecutor(10) as threads:
        sent = [threads.submit(timed, operated, jpeg, patience if k % 2 else None) for k in range(10)]
        outcomes = [future.result() for future in sent]
    patient, hasty = outcomes[::2], outcomes[1::2]
    assert [status for status, _ in patient] == ["200"] * len(patient)
    assert "503" in {status for status, _ in hasty}
    for status, words in hasty:
        assert status == "200" or "timeout" in words.lower(), words
    before = series(operated, "nv_inference_request_failure")
    assert sum(value for name, value in before.items() if 'model="detection"' in name) > 0


def test_under_overload_a_server_answers_or_refuses_quickly(operated: Server, jpeg: bytes) -> None:
    """Forty clients send without a pause: answers stay quick, and the other requests get a 503 as quickly.

    The times are the server's own. Those of forty clients on a busy machine are mostly the machine's.
    """
    patience, before = 0.2, {model: times(operated, model) for model in (*STEPS, "detection")}
    until = time.monotonic() + 4

    def client(_: int) -> list[str]:
        statuses = []
        while time.monotonic() < until:
            statuses.append(timed(operated, jpeg, patience)[0])
            if statuses[-1] != "200":
                time.sleep(0.1)
        return statuses

    with ThreadPoolExecutor(40) as threads:
        statuses = Counter(status for sent in threads.map(client, range(40)) for status in sent)
    assert set(statuses) == {"200", "503"}
    assert statuses["200"] >= 10
    means = {}
    for model, first in before.items():
        for what, (count, seconds) in times(operated, model).items():
            means[model, what] = (seconds - first[what][1]) / max(count - first[what][0], 1)
    print(means)
    # A request waits at most its timeout in each queue, and for the batch before it, which takes its time too.
    limits = {model: 2 * (patience + means[model, "batch"]) for model in STEPS}
    assert all(means[model, "queue"] <= limits[model] for model in STEPS), means
    assert means["detection", "fail"] <= sum(limits.values()), means
    assert len(ask(operated, jpeg)) >= 3


def times(server: Server, model: str) -> dict[str, tuple[int, float]]:
    """Returns a number and its seconds in all since the model was loaded: of requests that waited or failed, and of
    batches that were executed."""
    with tritonclient.http.InferenceServerClient(server.http) as client:
        (stats,) = client.get_inference_statistics(model)["model_stats"]
    measured, steps = stats["inference_stats"], ("compute_input", "compute_infer", "compute_output")
    batches = [batch[step] for batch in stats.get("batch_stats", ()) for step in steps]
    return {
        **{what: (int(measured[what]["count"]), int(measured[what]["ns"]) / 1e9) for what in ("queue", "fail")},
        "batch": (int(stats["execution_count"]), sum(int(step["ns"]) for step in batches) / 1e9),
    }


def timed(server: Server, image: bytes, seconds: float | None) -> tuple[str, str]:
    """Sends a request with this timeout per queue. Returns its status and message."""
    with tritonclient.http.InferenceServerClient(server.http) as client:
        timeout = None if seconds is None else int(seconds * 1e6)
        try:
            client.infer("detection", [tensor(tritonclient.http, [image])], timeout=timeout)
        except InferenceServerException as error:
            return error.status(), error.message()
    return "200", ""


@contextmanager
def busy(server: Server, slow: bytes) -> Iterator[Future[Any]]:
    """Makes `preprocess` busy with slow images, and some more that wait. Yields the first request's future."""

    def send() -> Any:
        with tritonclient.http.InferenceServerClient(server.http, network_timeout=120) as client:
            return client.infer("preprocess", [tensor(tritonclient.http, [slow] * IMAGES)])

    with ThreadPoolExecutor(2) as threads:
        sent = [threads.submit(send), threads.submit(send)]
        wait_for(lambda: waiting(server) == 1, "no request waits")
        yield sent[0]
        for future in sent:
            future.result()


def waiting(server: Server) -> int:
    """Returns the number of requests in the queue of `preprocess`."""
    return int(series(server)['nv_inference_pending_request_count{model="preprocess",version="1"}'])


def images_by_result(server: Server) -> Counter[str]:
    samples = series(server, "preprocess_images_total")
    return Counter({name.split('result="')[1].split('"')[0]: int(value) for name, value in samples.items()})


@pytest.mark.parametrize("model", ["preprocess", "detection"])
def test_does_not_process_cancelled_requests(operated: Server, slow: bytes, model: str) -> None:
    images = 2 * IMAGES + 8
    for _ in range(5):
        before, network = images_by_result(operated), inferences(operated, "yolov5s")
        end = sum(before.values()) + images
        with tritonclient.grpc.InferenceServerClient(operated.grpc) as client, busy(operated, slow):
            call = client.async_infer(model, [tensor(tritonclient.grpc, [slow] * 8)], lambda result, error: None)
            wait_for(lambda: waiting(operated) == 2, "the request doesn't wait")
            wait_for(lambda: waiting(operated) == 0, "the request isn't executed")
            call.cancel()
            # The server reads this request after the cancellation, which was sent before it on the same connection.
            with pytest.raises(InferenceServerException, match="unknown model"):
                client.infer("none", [tensor(tritonclient.grpc, [b""])])
            # Triton counts the images at the end of the batch.
            is_in_time = sum(images_by_result(operated).values()) < end
        wait_for(lambda end=end: sum(images_by_result(operated).values()) >= end, "the batch didn't end")
        if is_in_time:
            break
    assert is_in_time, "each batch ended before it was cancelled"
    increase = images_by_result(operated) - before
    assert increase["decoded"] + increase["cancelled"] == images
    if model == "preprocess":
        assert increase["cancelled"] >= 1
    # Triton doesn't cancel a running step of an ensemble, but it doesn't start the next one.
    assert inferences(operated, "yolov5s") == network


def inferences(server: Server, model: str) -> int:
    """Returns the number of the model's inferences."""
    with tritonclient.http.InferenceServerClient(server.http) as client:
        (stats,) = client.get_inference_statistics(model)["model_stats"]
    return int(stats["inference_count"])


def wait_for(condition: Callable[[], bool], words: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, words
        time.sleep(0.05)


def test_the_models_metrics_count_images_boxes_and_time(operated: Server, jpeg: bytes) -> None:
    prefixes = ("preprocess_", "postprocess_")
    before = {name: value for prefix in prefixes for name, value in series(operated, prefix).items()}
    began = time.monotonic()
    boxes = sum(len(ask(operated, jpeg)) for _ in range(5))
    assert post(operated, b"no image")[0] == 400
    took = time.monotonic() - began
    after = {name: value for prefix in prefixes for name, value in series(operated, prefix).items()}
    grown = {name: after[name] - before.get(name, 0) for name in after}
    model = 'model="preprocess",version="1"'
    assert grown['preprocess_images_total{model="preprocess",result="decoded",version="1"}'] == 5
    assert grown['preprocess_images_total{model="preprocess",result="refused",version="1"}'] == 1
    assert grown[f"preprocess_latency_ns_count{{{model}}}"] == 6
    assert 1e6 < grown[f"preprocess_latency_ns_sum{{{model}}}"] < took * 1e9
    assert grown[f'preprocess_latency_ns_bucket{{{model},le="+Inf"}}'] == 6
    other = 'model="postprocess",version="1"'
    assert grown[f"postprocess_detections_total{{{other}}}"] == boxes
    assert grown[f"postprocess_latency_ns_count{{{other}}}"] == 5
