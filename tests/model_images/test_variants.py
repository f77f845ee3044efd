"""The detector's variants, and the plain models of the benchmark, return the same boxes as the detector."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http
from detect import detect_raw
from evaluate import SERVED, Detector
from google.protobuf import text_format
from metrics import iou
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import InferenceServerException

from model_images.support import DETECTION, Server, docker, serving
from model_images.variants import SCORES, build_variants

pytestmark = pytest.mark.server

SIZES = [(640, 640), (360, 800), (900, 500), (480, 640), (1080, 1920)]
OURS = ["detection", "detection_bytes", "detection_filter", "detection_fused"]
PLAIN = ["textbook", "detection_bls"]
NETWORKS = ["small", "large"]


@pytest.fixture(scope="module", params=NETWORKS)
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the repository of the variants, with the trained network or with the one of yolov5s's size."""
    return build_variants(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def variants(models: Path) -> Iterator[Server]:
    """Starts Triton with all variants."""
    for path in (models, *models.rglob("*")):
        path.chmod(0o755)
    with serving(models, limits=["--shm-size=1g"]) as running:
        yield running


def unchanged(detection: dict[str, Any], other: dict[str, Any]) -> bool:
    """Returns whether two detections have the same class and nearly the same box and score."""
    if detection["class_id"] != other["class_id"] or detection["label"] != other["label"]:
        return False
    boxes = [np.array([d["box"]]) for d in (detection, other)]
    # Boxes of a random network may have no area after clipping, and so no IoU.
    same_place = iou(*boxes)[0, 0] > 0.99 or np.abs(boxes[0] - boxes[1]).max() < 0.5
    return bool(same_place and abs(detection["score"] - other["score"]) < 2e-3)


def assert_agree(answer: dict[str, Any], expected: dict[str, Any], model: str) -> None:
    """Asserts that each box of one answer matches a different box of the other."""
    assert answer["image"] == expected["image"]
    left, strays = list(expected["detections"]), []
    for box in answer["detections"]:
        match = next((k for k, other in enumerate(left) if unchanged(box, other)), None)
        if match is None:
            strays.append(box)
        else:
            left.pop(match)
    # The textbook's NMS uses other arithmetic, and some random boxes are at the threshold.
    allowed = 0.02 * len(expected["detections"]) if model == "textbook" else 0
    assert max(len(strays), len(left)) <= allowed, (strays, left)


@pytest.fixture(scope="module")
def scenes() -> list[bytes]:
    import cv2
    from shapes import scene

    drawn = [scene(np.random.default_rng([31, k]), *size).image for k, size in enumerate(SIZES)]
    return [cv2.imencode(".jpg", image)[1].tobytes() for image in drawn]


@pytest.fixture(scope="module")
def expected(variants: Server, scenes: list[bytes]) -> list[dict[str, Any]]:
    """Returns the answers of the ensemble `detection`."""
    return [detect_raw(jpeg, variants.http, "detection") for jpeg in scenes]


def test_the_ensemble_finds_the_boxes_of_the_same_code_without_triton(
    models: Path, scenes: list[bytes], expected: list[dict[str, Any]]
) -> None:
    detector = Detector(models / "yolov5s" / "1" / "model.onnx")
    thresholds = SERVED._replace(score=SCORES[models.parent.name.removesuffix("0")])
    for jpeg, answer in zip(scenes, expected, strict=True):
        detections = detector.detect(jpeg, thresholds)
        # The decoders of two OpenCV versions differ slightly, so a score near the threshold may be on either side.
        assert abs(len(answer["detections"]) - len(detections.boxes)) <= 0.02 * len(detections.boxes)
    assert all(answer["detections"] for answer in expected)


@pytest.mark.parametrize("model", [*OURS[1:], *PLAIN])
def test_variants_agree_on_single_images(
    variants: Server, scenes: list[bytes], expected: list[dict[str, Any]], model: str
) -> None:
    for jpeg, answer in zip(scenes, expected, strict=True):
        assert_agree(detect_raw(jpeg, variants.http, model), answer, model)


@pytest.mark.parametrize("model", [*OURS, *PLAIN])
def test_variants_agree_on_several_images_in_a_request(
    variants: Server, scenes: list[bytes], expected: list[dict[str, Any]], model: str
) -> None:
    tensor = tritonclient.http.InferInput("IMAGE", [len(scenes), 1], "BYTES")
    tensor.set_data_from_numpy(np.array(scenes, np.object_).reshape(-1, 1))
    with tritonclient.http.InferenceServerClient(variants.http) as client:
        answers = client.infer(model, [tensor]).as_numpy("DETECTIONS")
    for answer, reference in zip(answers.ravel(), expected, strict=True):
        assert_agree(json.loads(answer), reference, model)


@pytest.mark.parametrize("model", OURS)
def test_every_variant_refuses_a_bad_image_with_the_same_message(
    variants: Server, scenes: list[bytes], model: str
) -> None:
    tensor = tritonclient.http.InferInput("IMAGE", [2, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([scenes[0], b""], np.object_).reshape(-1, 1))
    with (
        tritonclient.http.InferenceServerClient(variants.http) as client,
        pytest.raises(InferenceServerException, match="image 2 of 2: the image is empty") as caught,
    ):
        client.infer(model, [tensor])
    assert caught.value.status() == "400"


@pytest.mark.parametrize("model", OURS[1:])
def test_every_variant_accepts_thresholds_in_a_request(variants: Server, scenes: list[bytes], model: str) -> None:
    def ask(name: str, **parameters: float) -> dict[str, Any]:
        tensor = tritonclient.http.InferInput("IMAGE", [1, 1], "BYTES")
        tensor.set_data_from_numpy(np.array([[scenes[1]]], np.object_))
        with tritonclient.http.InferenceServerClient(variants.http) as client:
            answer = client.infer(name, [tensor], parameters=parameters).as_numpy("DETECTIONS")
        return json.loads(answer[0, 0])  # type: ignore[no-any-return]

    few = ask(model, confidence=0.5, top_k=2)
    assert 0 < len(few["detections"]) <= 2
    assert_agree(few, ask("detection", confidence=0.5, top_k=2), model)
    with pytest.raises(InferenceServerException, match="confidence must be a number from 0 to 1"):
        ask(model, confidence=7)


def test_the_networks_tensors_have_the_documented_sizes(models: Path) -> None:
    """Bytes per image of the input and the output."""

    def crossing(model: str) -> tuple[int, int]:
        text = (models / model / "config.pbtxt").read_text(encoding="utf-8")
        config = text_format.Parse(text, model_config_pb2.ModelConfig())
        assert config.name == model
        width = {model_config_pb2.TYPE_FP32: 4, model_config_pb2.TYPE_UINT8: 1}
        first, second = (int(np.prod(t.dims)) * width[t.data_type] for t in (config.input[0], config.output[0]))
        return first, second

    assert crossing("yolov5s") == (4_915_200, 8_568_000)
    assert crossing("yolov5s_bytes") == (1_228_800, 8_568_000)
    assert crossing("yolov5s_filter") == (1_228_800, 340_000)


def test_the_ensemble_detection_is_the_repositorys(models: Path) -> None:
    """Only the network, its score threshold and its instances differ."""
    score = SCORES[models.parent.name.removesuffix("0")]
    for origin in sorted((DETECTION / "repository").rglob("*")):
        if not origin.is_file() or "__pycache__" in origin.parts or origin.name == "model.onnx":
            continue
        text = (models / origin.relative_to(DETECTION / "repository")).read_text(encoding="latin-1")
        if origin.parent.name == "yolov5s":
            text = text.replace("  preferred_batch_size: [ 2 ]\n", "")
        text = text.replace(
            f'score_threshold" value: {{ string_value: "{score}"',
            f'score_threshold" value: {{ string_value: "{SERVED.score}"',
        )
        assert text == origin.read_text(encoding="latin-1")


def test_the_image_of_the_variants_contains_only_models(models: Path) -> None:
    network = models.parent.name.removesuffix("0")
    layers = json.loads(docker("image", "inspect", f"triton-operator/detection-variants:{network}"))[0]["RootFS"][
        "Layers"
    ]
    assert len(layers) == 1
    assert not list(models.rglob("__pycache__"))
