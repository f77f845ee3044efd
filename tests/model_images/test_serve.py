"""`make serve` reloads changed models; the clients generate test images and draw boxes."""

import importlib.util
import json
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from detections import Detections
from evaluate import Detector
from metrics import iou
from PIL import Image

from model_images.pictures import viewed
from model_images.support import DETECTION, MODEL_IMAGES, Server, docker, need_server_image
from model_images.test_small_models import template
from support import children, ports

ROOT = MODEL_IMAGES.parent
CLIENT = DETECTION / "client"
spec = importlib.util.spec_from_file_location("hack_serve", ROOT / "hack" / "serve.py")
assert spec
assert spec.loader
serve = importlib.util.module_from_spec(spec)
spec.loader.exec_module(serve)


def test_loads_ensembles_after_their_composing_models() -> None:
    whole = serve.ensembles(DETECTION / "repository")
    assert whole == {"detection": {"preprocess", "yolov5s", "postprocess"}}
    assert serve.affected(["yolov5s"], whole) == ["yolov5s", "detection"]
    assert serve.affected(["detection", "preprocess"], whole) == ["preprocess", "detection"]
    assert serve.affected(["a"], {"b": {"a"}, "c": {"b"}, "d": {"x"}}) == ["a", "b", "c"]
    assert serve.affected(["c", "a"], {"b": {"a"}, "c": {"b"}}) == ["a", "b", "c"]
    assert serve.affected(["a"], {"a": {"b"}, "b": {"a"}}) == ["a", "b"]


def test_finds_the_models_of_changed_files(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    paths = ["one/1/model.py", "one/config.pbtxt", "gone/1/model.py", "gone", "README.md"]
    assert serve.models_of({(1, str(tmp_path / path)) for path in paths}, tmp_path) == ["gone", "one"]


class Served:
    """A running `hack/serve.py` on a copy of the template's repository, and its log."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.repository = folder / "repository"
        if not self.repository.exists():
            shutil.copytree(MODEL_IMAGES / "template" / "repository", self.repository)
        self.log = folder / "log"
        self.port = ports.free(4)[0]
        command = [sys.executable, ROOT / "hack" / "serve.py", self.repository, f"--port={self.port}", *options]
        with self.log.open("w") as out:
            # With SIGTERM, it removes its container.
            self.process = children.start(command, last="TERM", stdout=out, stderr=subprocess.STDOUT)
        self.url = f"127.0.0.1:{self.port}"

    def wait_for(self, words: str, after: int = 0) -> int:
        """Waits until the log matches `words` after the position `after`. Returns the end of the match."""
        deadline = time.monotonic() + 90
        while (match := re.search(words, self.log.read_text()[after:])) is None:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, f"{words} isn't in the log:\n{self.log.read_text()}"
            time.sleep(0.1)
        return after + match.end()

    def stop(self) -> None:
        """Ends the program, which removes its container."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        assert docker("ps", "--quiet", f"--filter=publish={self.port}") == ""

    def replace(self, path: str, old: str, new: str) -> None:
        """Replaces a text in a file of the repository."""
        file = self.repository / path
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    need_server_image()
    running = Served(tmp_path_factory.mktemp("served"))
    try:
        running.wait_for("serving .* at ")
        yield running
    finally:
        running.stop()


@pytest.mark.server
def test_reloads_a_model_when_its_files_change(served: Served) -> None:
    wait_ready(served, "my_model")
    assert template.ask([[1, 0, 0, 0]], served.url) == [1]
    at = len(served.log.read_text())
    served.replace("my_model/1/compute.py", "features @ weights", "3 * features @ weights")
    at = served.wait_for("loaded my_model in", at)
    assert template.ask([[1, 0, 0, 0]], served.url) == [3]

    served.wait_for("requests are answered", at)

    # The warm-up has only zeros.
    served.replace("my_model/1/compute.py", "if not np.isfinite", "if features.any() and not is_finite")
    at = served.wait_for(r"my_model/1/compute.py:\d+: error TR904: .* name 'is_finite' is not defined", at)
    served.replace("my_model/1/compute.py", "if features.any() and not is_finite", "if not np.isfinite")
    at = served.wait_for("loaded my_model in", at)

    served.replace("my_model/config.pbtxt", "max_batch_size: 16", "max_batch_size 16")
    at = served.wait_for("my_model doesn't load: ", at)
    at = served.wait_for(r"my_model/config.pbtxt:\d+:\d+: error", at)
    served.replace("my_model/config.pbtxt", "max_batch_size 16", "max_batch_size: 1")
    at = served.wait_for("loaded my_model in", at)
    with urllib.request.urlopen(f"http://{served.url}/v2/models/my_model/config", timeout=10) as answer:
        assert json.load(answer)["max_batch_size"] == 1

    shutil.copytree(MODEL_IMAGES / "passthrough" / "repository" / "passthrough", served.repository / "passthrough")
    at = served.wait_for("loaded passthrough in", at)
    shutil.rmtree(served.repository / "passthrough")
    served.wait_for("unloaded passthrough", at)


@pytest.mark.server
def test_a_large_form_does_not_end_the_server(served: Served) -> None:
    wait_ready(served, "my_model")
    url, headers = f"http://{served.url}/v2/models/my_model/infer", {"Inference-Header-Content-Length": "0"}
    # urllib sends it as a form.
    request = urllib.request.Request(url, data=bytes(6 << 20), headers=headers)
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(request, timeout=60)
    wait_ready(served, "my_model")


def wait_ready(served: Served, model: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"http://{served.url}/v2/models/{model}/ready", timeout=5):
                return
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_refuses_a_folder_without_models(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "hack" / "serve.py", tmp_path]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "isn't a model repository: no folder in it contains a config.pbtxt" in result.stderr


def test_refuses_to_debug_a_model_that_does_not_exist() -> None:
    folder = MODEL_IMAGES / "template" / "repository"
    command = [sys.executable, ROOT / "hack" / "serve.py", folder, "--debug=your_model"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "has no model your_model" in result.stderr


@pytest.mark.server
def test_reports_a_used_port_and_leaves_no_container(served: Served) -> None:
    own = ("ps", "--all", "--quiet", f"--filter=volume={served.repository}")
    before = docker(*own)
    assert before
    command = [sys.executable, ROOT / "hack" / "serve.py", served.repository, f"--port={served.port}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert f"The server needs the ports {served.port} to {served.port + 2}" in result.stderr
    assert docker(*own) == before


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Generates ten images."""
    folder = tmp_path_factory.mktemp("scenes")
    command = [sys.executable, CLIENT / "scenes.py", folder, "--count=10"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return [Path(line) for line in result.stdout.splitlines()]


def test_generates_images_of_every_form_with_the_right_boxes(scenes: list[Path]) -> None:
    assert {path.suffix for path in scenes} == {".jpg", ".png", ".webp"}
    assert {Image.open(path).getexif().get(0x0112) for path in scenes} == {1, 3, 6}
    detector: Callable[[bytes], Detections] = Detector().detect
    truths = hits = 0
    for path in scenes:
        boxes = np.array([d["box"] for d in json.loads(path.with_suffix(".json").read_text())["detections"]])
        predictions = detector(path.read_bytes()).boxes
        truths += len(boxes)
        hits += int((iou(boxes, predictions).max(axis=1, initial=0) > 0.5).sum())
    assert hits / truths > 0.85


@pytest.mark.server
def test_draws_boxes_into_the_upright_picture(server: Server, scenes: list[Path], tmp_path: Path) -> None:
    draw = [sys.executable, CLIENT / "draw.py", f"--url={server.http}"]
    turned = next(path for path in scenes if Image.open(path).getexif().get(0x0112) == 6)
    subprocess.run([*draw, f"--out={tmp_path}", turned], check=True)
    before, after = viewed(turned.read_bytes()), np.asarray(Image.open(tmp_path / f"{turned.stem}.boxes.png"))
    assert after.shape == before.shape
    changed = np.abs(after.astype(int) - before).max(axis=2) > 0
    assert 0.001 < changed.mean() < 0.5
    # The drawn pixels are near the frames of the true boxes.
    for detection in json.loads(turned.with_suffix(".json").read_text())["detections"]:
        left, top, _, bottom = (round(side) for side in detection["box"])
        frame = changed[max(0, top - 8) : bottom + 8, max(0, left - 8) : left + 8]
        assert frame.any()

    together = tmp_path / "together.png"
    result = subprocess.run([*draw, f"--join={together}", "--height=200", *scenes[:3], __file__], check=False)
    assert result.returncode == 1, "one of the files isn't an image"
    assert Image.open(together).height == 200


@pytest.mark.server
def test_the_picture_in_the_readme_shows_the_servers_boxes(server: Server, tmp_path: Path) -> None:
    samples = [DETECTION / "samples" / f"{name}.jpg" for name in ("square", "wide", "high")]
    png, picture = tmp_path / "made.png", ROOT / "docs" / "images" / "detection.png"
    command = [sys.executable, CLIENT / "draw.py", f"--url={server.http}", f"--join={png}", "--height=320", *samples]
    subprocess.run(command, check=True)
    pixels, expected = (np.asarray(Image.open(path).convert("RGB")).astype(int) for path in (png, picture))
    assert pixels.shape == expected.shape
    assert np.abs(pixels - expected).mean() < 2, "the picture is stale; the command to make it is in docs/models.md"
