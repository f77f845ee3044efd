"""A finding: what is wrong, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from triton_operator.api.text import one_line as one_line


class Severity(StrEnum):
    """How bad it is, worst first."""

    ERROR = "error"
    """Triton refuses the model, or every request to it fails. The server is not started."""
    WARNING = "warning"
    """It starts, and then does something other than what the text seems to ask for."""
    NOTE = "note"
    """Legitimate, and worth knowing."""


_RANK = {severity: rank for rank, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check has to say. `line` and `column` count from 1; None where there is no such place."""

    code: str
    """Stable name, `TR` and three digits; listed in `checks.CODES`."""
    severity: Severity
    file: str
    """Path relative to the repository, with `/`; `.` is the repository itself."""
    line: int | None
    column: int | None
    message: str
    remedy: str

    def __str__(self) -> str:
        """`preprocess/config.pbtxt:7:3: error TR101: what is wrong — what to do`, on one line."""
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        text = f"{place}: {self.severity} {self.code}: {self.message}"
        return one_line(f"{text} — {self.remedy}" if self.remedy else text)

    @property
    def model(self) -> str:
        """The model's directory, or an empty string where the finding is about the repository."""
        return "" if self.file == "." else self.file.split("/", 1)[0]


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors first, then by file and place: the order in which people and the report get them."""
    return tuple(sorted(set(findings), key=lambda f: (_RANK[f.severity], f.file, f.line or 0, f.column or 0, f.code)))
