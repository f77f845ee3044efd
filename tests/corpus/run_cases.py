"""Repositories whose faults show when a server runs them, and legal ones that look like them: tests/corpus/run/*.txt.

Each was tried on a real server by hand, by people who didn't know what `validate --with-server` sends. A file has a
sentence, the kind of the fault and the model at fault, and the files of the repository, each after `-- path --`. A path
that ends in ` base64` has its content in base64.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "run"
KINDS = {
    "load": "fails at load",
    "each": "each request fails",
    "some": "some requests fail",
    "answer": "wrong answer",
    "hang": "no answer",
    "death": "the model's process ends",
    "sequence": "sequences",
    "calls": "ensembles and BLS",
    "reload": "can't be loaded again",
    "legal": "legal",
}
_FILE = re.compile(r"^-- (\S+)( base64)? --\n", re.MULTILINE)


@dataclass(frozen=True)
class RunCase:
    """A repository. `kind`: a key of KINDS. `model`: the one at fault. `text`: what is wrong, in a sentence."""

    name: str
    kind: str
    model: str
    text: str
    files: dict[str, bytes]

    def write(self, root: Path) -> Path:
        """Writes the repository to `root`."""
        for path, content in self.files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        return root


def _read(path: Path) -> RunCase:
    head, *parts = _FILE.split(path.read_text())
    text, kind, model = (line.partition(": ")[2] for line in head.splitlines())
    files = {
        name: base64.b64decode(content) if encoded else content.encode()
        for name, encoded, content in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    }
    return RunCase(path.stem, kind, model, text, files)


RUN_CASES = tuple(_read(path) for path in sorted(FOLDER.glob("*.txt")))
