"""Measures the repository's accuracy on images that weren't used in training, with the server's code."""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import onnxruntime

REPOSITORY = Path(__file__).parents[1] / "repository"
for part in (Path(__file__).parent, REPOSITORY / "preprocess" / "1", REPOSITORY / "postprocess" / "1"):
    if str(part) not in sys.path:
        sys.path.append(str(part))

from detections import Detections, Thresholds, select, to_image  # noqa: E402
from images import decode  # noqa: E402
from letterbox import SIZE, letterbox  # noqa: E402
from metrics import Score, hits, score  # noqa: E402
from shapes import CLASSES, Scene, scene  # noqa: E402

# Training uses seed 1; another seed draws other scenes.
SEED = 20_011
SIZES = ((640, 640), (480, 640), (640, 427), (720, 1280), (1280, 960), (300, 500), (1080, 1920), (416, 416))
MODEL = REPOSITORY / "yolov5s" / "1" / "model.onnx"
SERVED = Thresholds(score=0.45, iou=0.45, max_boxes=300)
# Average precision needs the whole curve, so the score threshold is very low.
CURVE = Thresholds(score=0.001, iou=0.45, max_boxes=300)


def unseen(count: int, seed: int = SEED) -> Iterator[tuple[Scene, bytes]]:
    """Yields `count` scenes with sizes from SIZES, each with its JPEG."""
    for k in range(count):
        drawn = scene(np.random.default_rng([seed, k]), *SIZES[k % len(SIZES)])
        yield drawn, cv2.imencode(".jpg", drawn.image, [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes()


class Detector:
    """The three models in this process, on one thread."""

    def __init__(self, model: Path = MODEL) -> None:
        """Loads the network."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.seconds: list[float] = []

    def rows(self, jpeg: bytes) -> tuple[npt.NDArray[np.float32], int, int]:
        """Returns the network's rows [25200, 85] for an image, and the image's height and width in pixels."""
        image = decode(jpeg, max_pixels=64_000_000)
        tensor = np.empty((1, 3, SIZE, SIZE), np.float32)
        letterbox(image, tensor[0])
        started = time.perf_counter()
        (rows,) = self.session.run(None, {"images": tensor})
        self.seconds.append(time.perf_counter() - started)
        return rows[0], *image.shape[:2]

    def detect(self, jpeg: bytes, thresholds: Thresholds = SERVED) -> Detections:
        """Returns the boxes in pixels of the image."""
        rows, height, width = self.rows(jpeg)
        detections = select(rows, thresholds)
        return detections._replace(boxes=to_image(detections.boxes, height, width))


def evaluate(detector: Detector, count: int, seed: int = SEED) -> dict[str, Score]:
    """Returns precision and recall at the served threshold, and average precision, by class at IoU 0.5."""
    right: dict[int, list[npt.NDArray[np.bool_]]] = {k: [] for k in range(len(CLASSES))}
    scores: dict[int, list[npt.NDArray[np.float32]]] = {k: [] for k in range(len(CLASSES))}
    truths = [0] * len(CLASSES)
    for drawn, jpeg in unseen(count, seed):
        detections = detector.detect(jpeg, CURVE)
        for k in range(len(CLASSES)):
            mine, theirs = detections.classes == k, drawn.classes == k
            right[k].append(hits(detections.boxes[mine], detections.scores[mine], drawn.boxes[theirs]))
            scores[k].append(detections.scores[mine])
            truths[k] += int(theirs.sum())
    out = {}
    for k, name in enumerate(CLASSES):
        all_right, all_scores = np.concatenate(right[k]), np.concatenate(scores[k])
        # NMS keeps the better of two boxes, so the served boxes are those of the curve above the threshold.
        served = all_scores > SERVED.score
        curve = score(all_right, all_scores, truths[k])
        out[name] = score(all_right[served], all_scores[served], truths[k])._replace(
            average_precision=curve.average_precision
        )
    return out


def on_photos(detector: Detector, folder: Path) -> dict[str, list[float]]:
    """Returns the scores of the boxes that the server returns for each JPEG of the folder, by its name."""
    return {path.name: detector.detect(path.read_bytes()).scores.tolist() for path in sorted(folder.glob("*.jpg"))}


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--photos", type=Path, help="folder of photographs without shapes, to count the boxes there")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    detector = Detector(arguments.model)
    if arguments.photos:
        for name, scores in on_photos(detector, arguments.photos).items():
            print(f"{name}: {len(scores)} boxes, highest score {max(scores, default=0):.2f}")
        return
    class_scores = evaluate(detector, arguments.images, arguments.seed)
    print("| Class | Shapes | Precision | Recall | AP@0.5 |\n|---|---|---|---|---|")
    for name, s in class_scores.items():
        print(f"| {name} | {s.truths} | {s.precision:.3f} | {s.recall:.3f} | {s.average_precision:.3f} |")
    means = [
        np.mean([getattr(s, f) for s in class_scores.values()]) for f in ("precision", "recall", "average_precision")
    ]
    print(f"| all | {sum(s.truths for s in class_scores.values())} | " + " | ".join(f"{m:.3f}" for m in means) + " |")
    print(f"\nTime of the network for one image on one thread: median {np.median(detector.seconds) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
