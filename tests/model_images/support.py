"""Where things are, and Docker."""

import subprocess
from pathlib import Path
from typing import NamedTuple

MODEL_IMAGES = Path(__file__).parents[2] / "model_images"
DETECTION = MODEL_IMAGES / "detection"
SERVER_IMAGE = "triton-operator/server:dev"


class Server(NamedTuple):
    """host:port of each of Triton's listeners, and its container."""

    http: str
    grpc: str
    metrics: str
    container: str


def docker(*arguments: str) -> str:
    """Run docker and return what it prints; its words are in the failure."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"docker {' '.join(arguments[:2])}: {done.stderr}"
    return done.stdout.strip()
