"""The repository with the detector's variants, built as its image and taken out of it."""

import shutil
from pathlib import Path

from model_images.support import DETECTION, docker

PLAIN = Path(__file__).parents[2] / "benchmarks" / "pipeline" / "models"
"""What the variants are compared with: the textbook's three models, and BLS."""


def build_variants(out: Path, network: str = "small", instances: int = 1) -> Path:
    """Write the repository to `out`/models, with the plain models beside the variants; returns that folder."""
    image = f"triton-operator/detection-variants:{network}"
    arguments = [f"--build-arg={key}={value}" for key, value in {"NETWORK": network, "INSTANCES": instances}.items()]
    file = f"--file={DETECTION / 'variants' / 'Dockerfile'}"
    docker("build", "--quiet", "--tag", image, file, *arguments, str(DETECTION))
    models = out / "models"
    models.mkdir(parents=True, exist_ok=True)
    # The image has no command; one that is never run satisfies `create`.
    container = docker("create", image, "none")
    try:
        docker("cp", f"{container}:/models/.", str(models))
    finally:
        docker("rm", container)
    shutil.copytree(PLAIN, models, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    version = models / "textbook_network" / "1"
    version.mkdir(exist_ok=True)  # git keeps no empty directory
    shutil.copy(models / "yolov5s" / "1" / "model.onnx", version)
    return models
