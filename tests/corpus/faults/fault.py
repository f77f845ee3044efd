"""The type of a fault, and the paths that most faults change."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from corpus.good import BY_NAME
from support.mutations import Change
from triton_repository_check.expected import Expected


@dataclass(frozen=True)
class Fault:
    """A mutation of a good repository, and the finding that the check must report."""

    name: str
    """Unique name of the mutation."""
    of: str
    """Name of the good repository."""
    change: Change
    code: str
    severity: str
    """error, warning or note."""
    place: str
    """file, or file:line."""
    expectations: dict[str, object] = field(default_factory=dict)
    """Expectations that differ from those of the good repository."""

    @property
    def expected(self) -> Expected:
        return replace(BY_NAME[self.of].expected, **self.expectations)  # type: ignore[arg-type]

    def write(self, root: Path) -> Path:
        """Writes the faulty repository to `root`."""
        self.change(BY_NAME[self.of].write(root))
        return root


PRE, NET, POST, DETECT = (f"{name}/config.pbtxt" for name in ("pre", "net", "post", "detect"))
TEXT = "words/config.pbtxt"
PRE_PY = "pre/1/model.py"
ONNX = "net/1/model.onnx"
