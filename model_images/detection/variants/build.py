"""Writes the detection repository with its variants.

| Ensemble           | First boundary | Second boundary  |
|--------------------|----------------|------------------|
| `detection`        | FP32           | [25200, 85]      |
| `detection_bytes`  | UINT8          | [25200, 85]      |
| `detection_filter` | UINT8          | [1000, 85]       |
| `detection_fused`  | none: one Python model does all    |

A boundary is the tensor that passes from one model to the next. Every variant has the files of a model of the
repository, with a changed config.pbtxt. `grafts.py` adds nodes to the inputs and outputs of the networks.
"""

import argparse
import shutil
import sys
from pathlib import Path

DETECTION = Path(__file__).parents[1]
for part in ("training", "repository/preprocess/1"):
    sys.path.append(str(DETECTION / part))

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from grafts import bytes_first, filter_last  # noqa: E402

REPOSITORY = DETECTION / "repository"
FUSED = Path(__file__).parent / "fused"
NETWORKS = {"small": REPOSITORY / "yolov5s" / "1" / "model.onnx"}

Changes = dict[str, str]


def network(name: str) -> onnx.ModelProto:
    """Returns the trained network (`small`), one of yolov5s's size (`large`), or a file with yolov5s's tensors."""
    if name != "large":
        return onnx.load(NETWORKS.get(name, Path(name)))
    import cv2
    from large import large
    from letterbox import SIZE, letterbox

    samples = sorted((DETECTION / "samples").glob("*.jpg"))
    images = np.empty((len(samples), 3, SIZE, SIZE), np.float32)
    for path, out in zip(samples, images, strict=True):
        letterbox(np.asarray(cv2.imread(str(path)), np.uint8), out)
    return large(images)


def changed(config: Path, changes: Changes) -> str:
    """Returns the text of a config.pbtxt with each key replaced by its value. Raises ValueError if a key is missing."""
    text = config.read_text(encoding="utf-8")
    for old, new in changes.items():
        if old not in text:
            raise ValueError(f"{config} doesn't contain {old!r}")
        text = text.replace(old, new)
    return text


def write(out: Path, origin: str, suffix: str, changes: Changes) -> Path:
    """Copies the model `origin` to `out`/`origin``suffix` with a changed configuration, without its network."""
    target = out / (origin + suffix)
    ignored = shutil.ignore_patterns("__pycache__", "config.pbtxt", "model.onnx")
    shutil.copytree(REPOSITORY / origin, target, ignore=ignored)
    renamed = {f'name: "{origin}"': f'name: "{origin}{suffix}"', **changes}
    (target / "config.pbtxt").write_text(changed(REPOSITORY / origin / "config.pbtxt", renamed), encoding="utf-8")
    return target


def steps(**suffixes: str) -> Changes:
    """Returns the changes that make an ensemble's steps use other models, such as `yolov5s="_bytes"`."""
    return {f'model_name: "{model}"': f'model_name: "{model}{suffix}"' for model, suffix in suffixes.items()}


def fuse(out: Path, instances: int) -> Path:
    """Writes `out`/detection_fused: its model.py and the code of the stages."""
    target = out / "detection_fused"
    ignored = shutil.ignore_patterns("__pycache__", "model.py", "measures.py")
    for stage in ("preprocess", "postprocess"):
        shutil.copytree(REPOSITORY / stage / "1", target / "1", ignore=ignored, dirs_exist_ok=True)
    shutil.copy(FUSED / "1" / "model.py", target / "1")
    config = changed(FUSED / "config.pbtxt", {"count: 1": f"count: {instances}"})
    (target / "config.pbtxt").write_text(config, encoding="utf-8")
    return target


def build(out: Path, model: onnx.ModelProto, instances: int, keep: int, device: str = "cpu") -> None:
    """Writes the repository to `out`. Each network gets `instances` instances with one thread."""
    placed = {"count: 1": f"count: {instances}"}
    if device == "cpu":
        # On a CPU a batch isn't faster: a large one leaves instances on other cores without work, and single images
        # cost the server more. Two images gave the highest throughput and the lowest tail latency.
        batching = "dynamic_batching {\n"
        placed[batching] = f"{batching}  preferred_batch_size: [ 2 ]\n"
    rows, few = "[ 25200, 85 ]", f"[ {keep}, 85 ]"
    fewer = {rows: few}
    write(out, "preprocess", "", {})
    write(out, "postprocess", "", {})
    write(out, "detection", "", {})
    write(out, "preprocess", "_bytes", {"TYPE_FP32": "TYPE_UINT8"})
    write(out, "detection", "_bytes", steps(preprocess="_bytes", yolov5s="_bytes"))
    write(out, "postprocess", "_filter", fewer)
    write(out, "detection", "_filter", steps(preprocess="_bytes", yolov5s="_filter", postprocess="_filter"))

    input_text = "TYPE_FP32 dims: [ 3, 640, 640 ]"
    from_bytes = {input_text: input_text.replace("FP32", "UINT8")}
    in_bytes = bytes_first(model)
    networks = {
        write(out, "yolov5s", "", placed): model,
        write(out, "yolov5s", "_bytes", placed | from_bytes): in_bytes,
        write(out, "yolov5s", "_filter", placed | from_bytes | fewer): filter_last(in_bytes, keep),
        fuse(out, instances): model,
    }
    for target, written in networks.items():
        onnx.save(written, target / "1" / "model.onnx")


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="a new folder for the repository")
    parser.add_argument("--network", default="small", help="small, large, or a file such as yolov5s.onnx")
    parser.add_argument("--instances", type=int, default=1, help="instances per network; use one per core of the pod")
    parser.add_argument("--keep", type=int, default=1000, help="rows that the filtering network returns")
    parser.add_argument(
        "--device", choices=("cpu", "gpu"), default="cpu", help="on a CPU the preferred batch is two images"
    )
    arguments = parser.parse_args()
    build(arguments.out, network(arguments.network), arguments.instances, arguments.keep, arguments.device)


if __name__ == "__main__":
    main()
