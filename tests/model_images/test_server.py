"""The detection repository with a real Triton, over HTTP and gRPC, as a non-root user."""

import http.client
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import cv2
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from detect import detect, detect_raw
from detections import Detections
from evaluate import SERVED, Detector
from metrics import iou
from tritonclient.utils import InferenceServerException

from model_images.support import DETECTION, Server, docker

pytestmark = pytest.mark.server

SceneJpeg = Callable[[int, int, int], bytes]
# All different, so that every batch has different sizes.
SIZES = [(240 + 40 * k, 640 - 24 * k) for k in range(16)]


def post_raw(server: Server, body: bytes) -> tuple[int, dict[str, Any]]:
    """Sends plain bytes. Returns the status, and the JSON of the error or of the boxes."""
    host, port = server.http.split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.request("POST", "/v2/models/detection/infer", body, {"Inference-Header-Content-Length": "0"})
    answer = connection.getresponse()
    content, length = answer.read(), answer.headers["Inference-Header-Content-Length"]
    connection.close()
    if answer.status != 200:
        return answer.status, json.loads(content)
    assert length is not None
    return 200, json.loads(content[int(length) + 4 :])


def tensor(module: Any, images: list[bytes]) -> Any:
    """Returns the input IMAGE [n, 1] for tritonclient.http or .grpc."""
    model_input = module.InferInput("IMAGE", [len(images), 1], "BYTES")
    model_input.set_data_from_numpy(np.array(images, np.object_).reshape(-1, 1))
    return model_input


def counts(server: Server, model: str) -> tuple[int, int]:
    """Returns the model's inferences and executions."""
    with tritonclient.http.InferenceServerClient(server.http) as client:
        (stats,) = client.get_inference_statistics(model)["model_stats"]
    return stats["inference_count"], stats["execution_count"]


def assert_same(answer: dict[str, Any], expected: Detections, height: int, width: int) -> None:
    """Asserts that the server's JSON has the boxes of the same code in this process. JPEG decoders differ slightly."""
    assert answer["image"] == {"width": width, "height": height}
    boxes = np.array([d["box"] for d in answer["detections"]]).reshape(-1, 4)
    assert len(boxes) == len(expected.boxes)
    assert len(boxes) > 0
    overlap = iou(boxes, expected.boxes)
    assert (overlap.max(axis=1) > 0.95).all()
    named = [d["class_id"] for d in answer["detections"]]
    assert named == expected.classes[overlap.argmax(axis=1)].tolist()


@pytest.fixture(scope="module")
def detector() -> Detector:
    return Detector()


def test_the_client_sends_a_large_file_not_as_a_form(server: Server, scene_jpeg: SceneJpeg) -> None:
    jpeg = scene_jpeg(640, 640, 640)
    # This server has the usual stack, so a form of this size would end it.
    assert detect_raw(jpeg + bytes(6 << 20), server.http, "detection") == detect_raw(jpeg, server.http, "detection")


@pytest.mark.parametrize(("height", "width"), [(640, 640), (360, 800), (900, 500)])
@pytest.mark.parametrize("way", ["http", "grpc", "raw"])
def test_returns_the_boxes_of_a_jpeg(
    server: Server, scene_jpeg: SceneJpeg, detector: Detector, way: str, height: int, width: int
) -> None:
    jpeg = scene_jpeg(height, height, width)
    if way == "raw":
        answer = detect_raw(jpeg, server.http, "detection")
    else:
        answer = detect(jpeg, server.grpc if way == "grpc" else server.http, "detection", way)
    assert_same(answer, detector.detect(jpeg), height, width)
    for detection in answer["detections"]:
        x1, y1, x2, y2 = detection["box"]
        assert 0 <= x1 < x2 <= width
        assert 0 <= y1 < y2 <= height
        assert SERVED.score < detection["score"] <= 1
        assert detection["label"] == ["circle", "rectangle", "triangle", "star"][detection["class_id"]]


def test_a_request_can_have_images_of_several_sizes(server: Server, scene_jpeg: SceneJpeg, detector: Detector) -> None:
    sizes = SIZES[:3]
    images = [scene_jpeg(k, *size) for k, size in enumerate(sizes)]
    with tritonclient.http.InferenceServerClient(server.http) as client:
        answers = client.infer("detection", [tensor(tritonclient.http, images)]).as_numpy("DETECTIONS")
    assert answers.shape == (3, 1)
    for answer, image, size in zip(answers.ravel(), images, sizes, strict=True):
        assert_same(json.loads(answer), detector.detect(image), *size)


def test_requests_with_different_sizes_share_batches(server: Server, scene_jpeg: SceneJpeg, detector: Detector) -> None:
    images = [scene_jpeg(k, *size) for k, size in enumerate(SIZES)]
    parts = ("preprocess", "yolov5s", "postprocess")
    before = {model: counts(server, model) for model in parts}
    rounds = 6
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        for _ in range(rounds):
            answers: list[Future[Any]] = [Future() for _ in images]
            for image, future in zip(images, answers, strict=True):
                client.async_infer(
                    "detection",
                    [tensor(tritonclient.grpc, [image])],
                    lambda result, error, future=future: future.set_result((result, error)),
                )
            outcomes = [future.result(timeout=60) for future in answers]
    for (result, error), image, size in zip(outcomes, images, SIZES, strict=True):
        assert error is None
        # Each request gets the boxes of its own image.
        assert_same(json.loads(result.as_numpy("DETECTIONS")[0, 0]), detector.detect(image), *size)
    for model in parts:
        after = counts(server, model)
        images_seen, executions = (b - a for a, b in zip(before[model], after, strict=True))
        assert images_seen == rounds * len(images), model
        if model != "postprocess":  # it is faster than the network, so it seldom has a queue
            assert executions < images_seen, f"{model}: {executions} executions for {images_seen} images"


BAD = {
    "empty": (b"", "the image is empty: 0 bytes"),
    "text": (b"this is no image", "not a JPEG, PNG or WebP image: it starts with b'this is '"),
    "damaged": (b"\xff\xd8\xff\xda\x00\x08" + bytes(50), "the JPEG is damaged: no size before its pixels"),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_answers_invalid_images_with_400_and_the_reason(server: Server, case: str) -> None:
    data, words = BAD[case]
    with (
        tritonclient.http.InferenceServerClient(server.http) as client,
        pytest.raises(InferenceServerException) as caught,
    ):
        client.infer("detection", [tensor(tritonclient.http, [data])])
    assert caught.value.status() == "400"
    assert words in caught.value.message()
    with (
        tritonclient.grpc.InferenceServerClient(server.grpc) as client,
        pytest.raises(InferenceServerException) as caught,
    ):
        client.infer("detection", [tensor(tritonclient.grpc, [data])])
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert words in caught.value.message()


def test_answers_truncated_images_and_bombs_with_400_and_the_reason(
    server: Server, scene_jpeg: SceneJpeg, png_bomb: bytes
) -> None:
    jpeg = scene_jpeg(1, 400, 400)
    status, answer = post_raw(server, jpeg[: len(jpeg) // 2])
    assert status == 400
    assert f"the JPEG is truncated: no end marker in its {len(jpeg) // 2} bytes" in answer["error"]
    status, answer = post_raw(server, png_bomb)
    assert status == 400
    assert "30000×30000 pixels are 900.0 megapixels, the limit is 64.0" in answer["error"]


def test_refuses_an_empty_body(server: Server) -> None:
    status, answer = post_raw(server, b"")
    assert status == 400
    assert answer["error"]


def test_bad_images_in_a_batch_fail_only_their_requests(
    server: Server, scene_jpeg: SceneJpeg, detector: Detector
) -> None:
    sizes = SIZES[:12]
    good = [scene_jpeg(k, *size) for k, size in enumerate(sizes)]
    bad = [b"this is no image", good[0][:500], b"\xff\xd8\xff"]
    slow = cv2.imencode(".jpg", np.full((6000, 6000, 3), 127, np.uint8))[1].tobytes()
    before = counts(server, "preprocess")
    with ThreadPoolExecutor(16) as threads:
        # While this one is decoded the others wait, and form batches of good and bad images.
        first = threads.submit(post_raw, server, slow)
        time.sleep(0.03)
        sent = [threads.submit(post_raw, server, (bad[k // 5] if k % 5 == 4 else good[k - k // 5])) for k in range(15)]
        answers = [future.result(timeout=60) for future in sent]
        assert first.result(timeout=60)[0] == 200
    images, executions = (b - a for a, b in zip(before, counts(server, "preprocess"), strict=True))
    assert images == 16
    assert executions < 16, "Triton formed no batch, so the test shows nothing"
    for k, (status, answer) in enumerate(answers):
        if k % 5 == 4:
            assert status == 400
            assert "not a JPEG" in answer["error"] or "truncated" in answer["error"]
        else:
            assert status == 200
            assert_same(answer, detector.detect(good[k - k // 5]), *sizes[k - k // 5])


def test_names_the_bad_image_in_a_request_with_several(server: Server, scene_jpeg: SceneJpeg) -> None:
    images = [scene_jpeg(0, 100, 100), b"", scene_jpeg(1, 100, 100)]
    with (
        tritonclient.http.InferenceServerClient(server.http) as client,
        pytest.raises(InferenceServerException, match="image 2 of 3: the image is empty"),
    ):
        client.infer("detection", [tensor(tritonclient.http, images)])


def test_the_server_runs_as_the_pods_user_with_a_read_only_root(server: Server) -> None:
    assert docker("exec", server.container, "id", "-u") == "1000"
    code = "import os, sys; sys.exit(os.access('/opt/tritonserver', os.W_OK) or os.access('/models', os.W_OK))"
    docker("exec", server.container, "python3", "-c", code)


def test_triton_counts_each_model_by_its_name(server: Server, scene_jpeg: SceneJpeg) -> None:
    detect_raw(scene_jpeg(0, 100, 100), server.http, "detection")
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    for model in ("detection", "preprocess", "yolov5s", "postprocess"):
        (line,) = [
            x for x in text.splitlines() if x.startswith(f'nv_inference_request_success{{model="{model}",version="1"}}')
        ]
        assert float(line.split()[-1]) > 0


@pytest.mark.parametrize("option", ["--raw", "--grpc", None])
def test_the_client_prints_one_line_of_json_per_image(server: Server, option: str | None) -> None:
    samples = sorted((DETECTION / "samples").glob("*.jpg"))
    assert len(samples) >= 3
    url = server.grpc if option == "--grpc" else server.http
    command = [sys.executable, str(DETECTION / "client" / "detect.py"), "--url", url]
    result = subprocess.run(
        [*command, *([option] if option else []), *map(str, samples), os.devnull],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["file"] for line in lines] == [str(sample) for sample in samples]
    assert all(line["detections"] for line in lines)
    assert result.returncode == 1
    assert result.stderr.startswith(f"{os.devnull}: ")
