"""What the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest

from model_images.support import MODEL_IMAGES, docker


@pytest.fixture(scope="session")
def load_generator_image() -> str:
    """Builds the image of the load generator and returns its name."""
    name, root = "triton-operator/perf-analyzer:test", MODEL_IMAGES.parent
    docker("build", "--quiet", "--tag", name, "--file", str(root / "perf_analyzer" / "Dockerfile"), str(root))
    return name


@pytest.fixture(scope="session")
def busybox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the static busybox of the operator's image."""
    folder = tmp_path_factory.mktemp("tools")
    dockerfile = MODEL_IMAGES.parent / "Dockerfile"
    image = docker("build", "--quiet", "--target=busybox", f"--file={dockerfile}", str(folder))
    container = docker("create", image)
    try:
        docker("cp", f"{container}:/busybox", str(folder / "busybox"))
    finally:
        docker("rm", container)
    return folder / "busybox"
