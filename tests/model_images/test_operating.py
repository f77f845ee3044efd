"""Operation of the detection repository on a real server: parameters, warm-up, queues, cancellation, metrics."""

import http.client
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cv2
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from model_images.support import DETECTION, Server, series, serving

pytestmark = pytest.mark.server

# Changes of the files as a user makes them: other labels, and a queue that a test can fill.
QUEUE = "max_queue_size: 64"
SHORT_QUEUE = "max_queue_size: 12"
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
    assert QUEUE in config.read_text()
    config.write_text(config.read_text().replace(QUEUE, SHORT_QUEUE))
    for path in (repository.parent, *repository.rglob("*"), repository):
        path.chmod(0o755)
    with serving(repository, options=[FORWARD]) as running:
        yield running, [inferences(running, model) for model in ("preprocess", "yolov5s", "postprocess")]


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
    given = module.InferInput("IMAGE", [len(images), 1], "BYTES")
    given.set_data_from_numpy(np.array(images, np.object_).reshape(-1, 1))
    return given


def ask(server: Server, image: bytes, **parameters: Any) -> list[dict[str, Any]]:
    """Sends an image over HTTP and returns the detections."""
    with tritonclient.http.InferenceServerClient(server.http) as client:
        answer = client.infer("detection", [tensor(tritonclient.http, [image])], parameters=parameters)
    return json.loads(answer.as_numpy("DETECTIONS")[0, 0])["detections"]  # type: ignore[no-any-return]


def post(server: Server, body: bytes, **headers: str) -> tuple[int, str, float]:
    """Sends plain bytes. Returns the status, the text of the response and the seconds that it took."""
    host, port = server.http.split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=120)
    started = time.monotonic()
    sent = {"Inference-Header-Content-Length": "0", **headers}
    connection.request("POST", "/v2/models/detection/infer", body, sent)
    answer = connection.getresponse()
    content = answer.read().decode(errors="replace")
    connection.close()
    return answer.status, content, time.monotonic() - started


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
        given = {"top_k": 1, "confidence": "0.3"}
        answer = client.infer("detection", [tensor(tritonclient.grpc, [jpeg])], parameters=given)
    assert json.loads(answer.as_numpy("DETECTIONS")[0, 0])["detections"] == usual[:1]
    status, text, _ = post(operated, jpeg, top_k="2")
    assert status == 200
    assert text.count('"box"') == 2


@pytest.mark.parametrize("grpc", [False, True])
def test_the_client_sends_thresholds(operated: Server, grpc: bool) -> None:
    program = [sys.executable, DETECTION / "client" / "detect.py", "--top-k=2", "--confidence=0.3"]
    url = ["--grpc", f"--url={operated.grpc}"] if grpc else [f"--url={operated.http}"]
    sample = DETECTION / "samples" / "square.jpg"
    done = subprocess.run([*program, *url, sample], capture_output=True, text=True, check=True)
    assert len(json.loads(done.stdout)["detections"]) == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"confidence": 1.5}, "confidence must be a number from 0 to 1, not 1.5"),
        ({"iou": "much"}, 'iou must be a number from 0 to 1, not "much"'),
        ({"top_k": 1000}, "top_k must be a whole number from 1 to 300, not 1000"),
    ],
)
def test_an_invalid_threshold_is_a_400(operated: Server, jpeg: bytes, given: dict[str, Any], words: str) -> None:
    with pytest.raises(InferenceServerException) as caught:
        ask(operated, jpeg, **given)
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
    assert all(found["label"] == names[found["class_id"]] for found in ask(operated, jpeg))


def test_every_model_is_warm_before_the_first_request(fresh: tuple[Server, list[int]]) -> None:
    """Triton counts a successful warm-up as an inference."""
    assert fresh[1] == [1, 1, 1]


def test_refuses_requests_immediately_if_the_queue_is_full(operated: Server, slow: bytes, jpeg: bytes) -> None:
    refusals, answers = overload(operated, slow, jpeg, 60)
    assert len(answers) >= 12
    assert len(refusals) >= 10
    assert all(status == 503 and "Exceeds maximum queue size" in text for status, text, _ in refusals)
    # Immediately: before the slow image is done.
    assert np.median([seconds for *_, seconds in refusals]) < 0.5
    assert len(ask(operated, jpeg)) >= 3


def test_refuses_requests_that_wait_longer_than_their_timeout(operated: Server, slow: bytes, jpeg: bytes) -> None:
    """Half of the requests behind slow ones have a timeout. Each is answered within it, or gets a 503."""
    patience = 0.25
    with ThreadPoolExecutor(16) as threads:
        for _ in range(3):
            threads.submit(post, operated, slow)
        time.sleep(0.1)
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
    """Forty clients send without a pause: answers stay quick, and the other requests get a 503 as quickly."""
    patience, until = 0.2, time.monotonic() + 4

    def client(_: int) -> list[tuple[str, float]]:
        seen = []
        while time.monotonic() < until:
            started = time.monotonic()
            status, _words = timed(operated, jpeg, patience)
            seen.append((status, time.monotonic() - started))
            if status != "200":
                time.sleep(0.1)
        return seen

    with ThreadPoolExecutor(40) as threads:
        seen = [one for many in threads.map(client, range(40)) for one in many]
    by_status = {status: [s for other, s in seen if other == status] for status, _ in seen}
    assert set(by_status) == {"200", "503"}
    served, refused = by_status["200"], by_status["503"]
    assert len(served) >= 10
    # A request waits at most the timeout in each of two queues, and for one or two batches. The machine is shared.
    assert np.quantile(served, 0.95) < 2
    assert np.quantile(refused, 0.95) < 1.5
    assert np.median(refused) < np.median(served)
    assert len(ask(operated, jpeg)) >= 3


def timed(server: Server, image: bytes, seconds: float | None) -> tuple[str, str]:
    """Sends a request with this timeout per queue. Returns its status and message."""
    with tritonclient.http.InferenceServerClient(server.http) as client:
        timeout = None if seconds is None else int(seconds * 1e6)
        try:
            client.infer("detection", [tensor(tritonclient.http, [image])], timeout=timeout)
        except InferenceServerException as error:
            return error.status(), error.message()
    return "200", ""


def overload(server: Server, slow: bytes, jpeg: bytes, count: int) -> tuple[list[Any], list[Any]]:
    """Sends `count` images while a slow one is decoded. Returns the refused and the answered ones."""
    with ThreadPoolExecutor(count + 1) as threads:
        held = [threads.submit(post, server, slow)]
        time.sleep(0.1)
        sent = [threads.submit(post, server, jpeg) for _ in range(count)]
        outcomes = [future.result() for future in sent]
        assert held[0].result()[0] == 200
    return [o for o in outcomes if o[0] != 200], [o for o in outcomes if o[0] == 200]


def images_by_result(server: Server) -> Counter[str]:
    found = series(server, "preprocess_images_total")
    return Counter({name.split('result="')[1].split('"')[0]: int(value) for name, value in found.items()})


@pytest.mark.parametrize("model", ["preprocess", "detection"])
def test_does_not_process_cancelled_requests(operated: Server, slow: bytes, model: str) -> None:
    before, network = images_by_result(operated), inferences(operated, "yolov5s")
    with tritonclient.grpc.InferenceServerClient(operated.grpc) as client:
        given = [tensor(tritonclient.grpc, [slow] * 8)]
        call = client.async_infer(model, given, lambda result, error: None)
        time.sleep(0.5)  # then the first image is being decoded, and the last one still waits
        call.cancel()
    wait_for(lambda: sum(images_by_result(operated).values()) >= sum(before.values()) + 8, "the batch didn't end")
    done = images_by_result(operated) - before
    assert done["decoded"] + done["cancelled"] == 8
    if model == "preprocess":
        assert done["cancelled"] >= 3
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
    boxes = sum(len(ask(operated, jpeg)) for _ in range(5))
    assert post(operated, b"no image")[0] == 400
    after = {name: value for prefix in prefixes for name, value in series(operated, prefix).items()}
    grown = {name: after[name] - before.get(name, 0) for name in after}
    model = 'model="preprocess",version="1"'
    assert grown['preprocess_images_total{model="preprocess",result="decoded",version="1"}'] == 5
    assert grown['preprocess_images_total{model="preprocess",result="refused",version="1"}'] == 1
    assert grown[f"preprocess_latency_ns_count{{{model}}}"] == 6
    assert 1e6 < grown[f"preprocess_latency_ns_sum{{{model}}}"] < 5e9
    assert grown[f'preprocess_latency_ns_bucket{{{model},le="+Inf"}}'] == 6
    other = 'model="postprocess",version="1"'
    assert grown[f"postprocess_detections_total{{{other}}}"] == boxes
    assert grown[f"postprocess_latency_ns_count{{{other}}}"] == 5
