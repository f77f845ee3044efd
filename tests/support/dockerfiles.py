"""The Dockerfiles of this repository."""

import subprocess
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
# By git: a search of the folders also looks into .cache, where other tests remove folders meanwhile.
_LISTED = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*Dockerfile*"],
    cwd=_ROOT, check=True, capture_output=True, text=True,
).stdout.splitlines()  # fmt: skip
DOCKERFILES = sorted(_ROOT / name for name in _LISTED if not name.startswith("hack/world/"))
"""Without those that build replacements of public images, which have the users of these images."""
