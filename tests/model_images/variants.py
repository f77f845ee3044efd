"""Builds the image of the detector's variants and extracts its repository."""

import shutil
from pathlib import Path

from model_images.support import DETECTION, docker

PLAIN = Path(__file__).parents[2] / "benchmarks" / "pipeline" / "models"
"""The models that the benchmark compares the variants with: those of tutorials, and BLS."""
SCORES = {"small": 0.45, "large": 0.25}
"""The score threshold of each network. The large one is random and finds nothing with a high score."""


def build_variants(out: Path, network: str = "small", instances: int = 1) -> Path:
    """Writes the repository with the variants and the plain models to `out`/models. Returns that folder."""
    image = f"triton-operator/detection-variants:{network}"
    arguments = [f"--build-arg={key}={value}" for key, value in {"NETWORK": network, "INSTANCES": instances}.items()]
    file = f"--file={DETECTION / 'variants' / 'Dockerfile'}"
    docker("build", "--quiet", "--tag", image, file, *arguments, str(DETECTION))
    models = out / "models"
    models.mkdir(parents=True, exist_ok=True)
    # `docker create` needs a command, but the image has none. The container never runs.
    container = docker("create", image, "none")
    try:
        docker("cp", f"{container}:/models/.", str(models))
    finally:
        docker("rm", container)
    shutil.copytree(PLAIN, models, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (*models.rglob("config.pbtxt"), models / "textbook_postprocess" / "1" / "model.py"):
        text = path.read_text(encoding="utf-8")
        for setting in (
            f'"score_threshold" value: {{ string_value: "{SCORES["small"]}"',
            f"MAX_BOXES = {SCORES['small']},",
        ):
            text = text.replace(setting, setting.replace(str(SCORES["small"]), str(SCORES[network])))
        path.write_text(text, encoding="utf-8")
    version = models / "textbook_network" / "1"
    version.mkdir(exist_ok=True)  # git doesn't store empty directories
    shutil.copy(models / "yolov5s" / "1" / "model.onnx", version)
    return models
