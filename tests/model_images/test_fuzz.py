"""Decodes thousands of damaged files with this machine's OpenCV and the server's. FUZZ_FILES sets the number."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from model_images.support import MODEL_IMAGES, SERVER_IMAGE, need_server_image

FILES = os.environ.get("FUZZ_FILES", "4000")
PROGRAM = Path(__file__).with_name("fuzz.py")


def run(command: list[str]) -> None:
    process = subprocess.run([*command, "--files", FILES], capture_output=True, text=True, check=False)
    lines = process.stdout.splitlines()
    assert process.returncode == 0, f"at the file {lines[-1] if lines else '?'}:\n{process.stderr[-2000:]}"
    result = json.loads(lines[-1])
    assert result["grown_megabytes"] < 60
    outcomes = dict(result["outcomes"])
    # The damage must be neither always harmless nor always refused by the header.
    assert outcomes["decoded"] > int(FILES) / 20
    for kind in ("JPEG", "PNG", "WebP"):
        assert outcomes[f"the {kind} be decoded"] > int(FILES) / 200


def test_decodes_or_refuses_damaged_files() -> None:
    run([sys.executable, "-X", "faulthandler", str(PROGRAM)])


@pytest.mark.server
def test_decodes_or_refuses_damaged_files_with_the_servers_opencv() -> None:
    need_server_image()
    mounts = [f"--volume={MODEL_IMAGES}:/r/model_images:ro", f"--volume={PROGRAM.parent}:/r/tests/model_images:ro"]
    program = ["python3", "-X", "faulthandler", "/r/tests/model_images/fuzz.py"]
    run(["docker", "run", "--rm", "--memory=600m", *mounts, SERVER_IMAGE, *program])
