"""What is made from the code is checked in, and as the code would make it now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_generated_file_is_stale() -> None:
    done = subprocess.run(
        [sys.executable, "hack/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
