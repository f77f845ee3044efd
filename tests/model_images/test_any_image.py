"""A real server answers any image with the right boxes or a 400 with the reason, in bounded memory."""

import http.client
import io
import json
import random
import re
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest
import tritonclient.http
from evaluate import Detector
from metrics import iou
from PIL import Image
from shapes import scene

from model_images.fuzz import chunk, damaged, whole_files
from model_images.pictures import Form, encode, forms
from model_images.support import DETECTION, Server, docker, serving

pytestmark = pytest.mark.server

# The memory of one model's process in MB, including its shared memory, for the largest accepted image.
MAX_MEMORY = 1000
Answer = tuple[int, dict[str, object]]


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """Starts a separate server with the sample's memory limit. Docker kills a process that uses more."""
    with serving(DETECTION / "repository", limits=["--memory=2g", "--memory-swap=2g"]) as running:
        yield running


@pytest.fixture(scope="module")
def upright() -> np.ndarray:
    """Returns the RGB pixels of a scene with several shapes."""
    return np.ascontiguousarray(scene(np.random.default_rng(18), 420, 600).image[..., ::-1])


@pytest.fixture(scope="module")
def boxes_of() -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function that detects boxes and classes [n, 5] with the same code, of those with a high score."""
    detector = Detector()

    def find(rgb: np.ndarray) -> np.ndarray:
        png = cv2.imencode(".png", np.ascontiguousarray(rgb[..., ::-1]))[1].tobytes()
        boxes = detector.detect(png)
        sure = boxes.scores > 0.8
        return np.column_stack([boxes.boxes[sure], boxes.classes[sure]])

    return find


def post(server: Server, body: bytes) -> Answer:
    """Sends plain bytes. Returns the status, and the JSON of the error or of the boxes."""
    host, port = server.http.split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=120)
    connection.request("POST", "/v2/models/detection/infer", body, {"Inference-Header-Content-Length": "0"})
    answer = connection.getresponse()
    content, length = answer.read(), answer.headers["Inference-Header-Content-Length"]
    connection.close()
    return answer.status, json.loads(content if length is None else content[int(length) + 4 :])


def right(answer: Answer, form: Form, expected: np.ndarray) -> bool:
    """Returns whether the answer has every expected box with its class, in the coordinates of the upright image."""
    status, content = answer
    height, width = form.pixels.shape[:2]
    if status != 200 or content["image"] != {"width": width, "height": height}:
        return False
    boxes = [[*d["box"], d["class_id"]] for d in content["detections"]]  # type: ignore[attr-defined]
    mine = np.array(boxes).reshape(-1, 5)
    overlap = iou(expected[:, :4], mine[:, :4]) * (expected[:, 4:5] == mine[:, 4])
    return bool((overlap.max(axis=1, initial=0) > 0.85).all())


def test_returns_the_boxes_of_what_a_viewer_shows_for_every_form(
    own: Server, upright: np.ndarray, boxes_of: Callable[[np.ndarray], np.ndarray]
) -> None:
    by_name = forms(upright)
    apart = {
        form.pixels.tobytes(): boxes_of(form.pixels)
        for form in {f.pixels.tobytes(): f for f in by_name.values()}.values()
    }
    expected = {name: apart[form.pixels.tobytes()] for name, form in by_name.items()}
    assert min(len(boxes) for boxes in expected.values()) >= 3
    with ThreadPoolExecutor(8) as threads:
        answers = dict(zip(by_name, threads.map(lambda form: post(own, form.data), by_name.values()), strict=True))
    wrong = [name for name, form in by_name.items() if not right(answers[name], form, expected[name])]
    assert not wrong, answers[wrong[0]]


@pytest.mark.parametrize("side", [1, 2, 4000])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_accepts_the_smallest_and_large_images(own: Server, kind: str, side: int) -> None:
    status, content = post(own, encode(Image.new("RGB", (side, side), (200, 30, 30)), kind))
    assert (status, content["image"]) == (200, {"width": side, "height": side})


def refused(jpeg: bytes, png: bytes, webp: bytes) -> dict[str, tuple[bytes, str]]:
    """Returns images that the server refuses, and the error messages."""
    wide = struct.pack(">IIBBBBB", 8001, 8000, 8, 2, 0, 0, 0)
    bomb = io.BytesIO()
    Image.new("1", (30_000, 30_000)).save(bomb, "PNG")
    start_of_frame = jpeg.index(b"\xff\xc0")
    claims = jpeg[: start_of_frame + 5] + struct.pack(">HH", 65_535, 65_535) + jpeg[start_of_frame + 9 :]
    too_large = "the image is too large: "
    return {
        "over the limit": (png[:8] + chunk(b"IHDR", wide) + png[33:], f"{too_large}8001×8000 pixels are 64.0 mega"),
        "bomb": (bomb.getvalue(), f"{too_large}30000×30000 pixels are 900.0 megapixels, the limit is 64.0"),
        "JPEG that claims much": (claims, f"{too_large}65535×65535 pixels are 4294.8 megapixels, the limit is 64.0"),
        "WebP that claims much": (webp[:21] + b"\xff" * 4 + webp[25:], f"{too_large}16384×16384 pixels are 268.4"),
        "truncated JPEG": (jpeg[:-400], f"the JPEG is truncated: no end marker in its {len(jpeg) - 400} bytes"),
        "truncated PNG": (png[:-400], f"the PNG is truncated: no end marker in its {len(png) - 400} bytes"),
        "truncated WebP": (webp[:-400], f"the WebP is truncated: it should have {len(webp)} bytes and has"),
        "half a header": (jpeg[:20], "the JPEG is truncated: its header ends after 20 bytes"),
        "random bytes": (random.Random(1).randbytes(5000), "not a JPEG, PNG or WebP image: it starts with b'"),
        "text": ("Dobrý den, tady je obrázek.".encode(), "not a JPEG, PNG or WebP image: it starts with b'Dobr"),
        "GIF": (b"GIF89a" + bytes(40), "not a JPEG, PNG or WebP image: it starts with b'GIF89a"),
        "SVG": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a JPEG, PNG or WebP image: it starts with b'<svg"),
        "one byte": (b"\xff", "not a JPEG, PNG or WebP image: it starts with b'\\xff'"),
        "damaged pixels": (png[:41] + bytes(len(png) - 57) + png[-16:], "the PNG"),
    }


def test_refuses_bad_images_without_harming_other_requests(
    own: Server, upright: np.ndarray, boxes_of: Callable[[np.ndarray], np.ndarray]
) -> None:
    image = Image.fromarray(upright)
    good = Form(encode(image, "JPEG", quality=95), upright)
    bad = refused(good.data, encode(image, "PNG"), encode(image, "WEBP", lossless=True))
    before = stubs(own)
    # Good images between bad ones, so that they share batches.
    sent = [body for data, _ in bad.values() for body in (data, good.data)]
    with ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(lambda body: post(own, body), sent))
    expected = boxes_of(upright)
    for k, (name, (_, words)) in enumerate(bad.items()):
        status, content = answers[2 * k]
        assert (status, words in str(content["error"])) == (400, True), (name, status, content)
        assert right(answers[2 * k + 1], good, expected), name
    assert stubs(own) == before, "a process died and was restarted"


def test_the_server_survives_damaged_files(
    own: Server, upright: np.ndarray, boxes_of: Callable[[np.ndarray], np.ndarray]
) -> None:
    before, files = stubs(own), whole_files()
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda k: post(own, damaged(files, 3, k)), range(400)))
    assert {status for status, _ in answers} == {200, 400}
    assert stubs(own) == before
    good = Form(encode(Image.fromarray(upright), "PNG"), upright)
    assert right(post(own, good.data), good, boxes_of(upright))


def test_memory_is_bounded_for_the_largest_images(own: Server) -> None:
    """Sends several images of the form that takes the most memory. They are decoded one at a time, and freed."""
    before = stubs(own)
    worst = encode(Image.new("CMYK", (8000, 8000), (9, 120, 30, 60)), "JPEG", progressive=True)
    images = tritonclient.http.InferInput("IMAGE", [3, 1], "BYTES")
    images.set_data_from_numpy(np.array([[worst]] * 3, np.object_))
    with tritonclient.http.InferenceServerClient(own.http, network_timeout=120) as client:
        answers = client.infer("detection", [images]).as_numpy("DETECTIONS").ravel()
    assert [json.loads(answer)["image"]["width"] for answer in answers] == [8000] * 3
    assert stubs(own) == before
    peak, now = memory(own)
    assert peak < MAX_MEMORY
    assert now < 200, "the process still holds pixels"


def stubs(server: Server) -> list[str]:
    """Returns the folders in /proc of the Python models' processes."""
    script = "for p in /proc/[0-9]*; do case $(cat $p/comm) in triton_python*) echo $p;; esac; done"
    return docker("exec", server.container, "sh", "-c", script).split()


def memory(server: Server) -> tuple[float, float]:
    """Returns the decoding process's peak memory, and its current memory without shared memory, in MB."""
    script = "cat $(dirname $(grep -l [/]preprocess/ /proc/[0-9]*/cmdline))/status"
    text = docker("exec", server.container, "sh", "-c", script)
    assert "triton_python" in text
    peak, now = (int(re.search(rf"{key}:\s+(\d+) kB", text)[1]) / 1024 for key in ("VmHWM", "RssAnon"))  # type: ignore[index]
    return peak, now
