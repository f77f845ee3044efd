"""A fault, and the files of the good repositories that most of them are in."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from corpus.good import BY_NAME
from support.mutations import Change
from triton_operator.repository.checks import Expected


@dataclass(frozen=True)
class Fault:
    """One mutation, and where the check must see it."""

    name: str
    """Says what was done; unique."""
    of: str
    """The good repository that it was done to."""
    change: Change
    code: str
    severity: str
    """error, warning or note."""
    place: str
    """file, or file:line."""
    wanted: dict[str, object] = field(default_factory=dict)
    """What the pod has otherwise than for the good one."""

    @property
    def expected(self) -> Expected:
        return replace(BY_NAME[self.of].wanted, **self.wanted)  # type: ignore[arg-type]

    def write(self, root: Path) -> Path:
        """Put the faulty repository under `root`."""
        self.change(BY_NAME[self.of].write(root))
        return root


PRE, NET, POST, DETECT = (f"{name}/config.pbtxt" for name in ("pre", "net", "post", "detect"))
TEXT = "words/config.pbtxt"
PRE_PY = "pre/1/model.py"
ONNX = "net/1/model.onnx"
