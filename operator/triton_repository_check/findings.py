"""Findings: what is wrong, where, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from triton_repository_check.text import one_line


class Severity(StrEnum):
    """The severity of a finding, worst first."""

    ERROR = "error"
    """Triton refuses the model, or every request to it fails. The server is not started."""
    WARNING = "warning"
    """The server starts, but the model probably doesn't do what its author wants."""
    NOTE = "note"
    """The model is valid. The note is information."""


_IN_SPEC = re.compile(r"(?:spec\.models\[([^/]*?)\]\.config|spec\.server\.args|--server-arg)\b")
_RANK = {severity: rank for rank, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check. `line` and `column` count from 1; None if the finding has no position.

    - `code`: `TR` and three digits; listed in `check_table.CODES`. It is stable.
    - `file`: path relative to the repository, with `/`. `.` is the repository itself. Or a field of the TritonModel:
      `spec.models[preprocess].config.max_batch_size`, or an option of the command in its place: `--server-arg`.
    """

    code: str
    severity: Severity
    file: str
    line: int | None
    column: int | None
    message: str
    remedy: str

    def __str__(self) -> str:
        """Returns one line: `preprocess/config.pbtxt:7:3: error TR101: what is wrong — what to do`."""
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        text = f"{place}: {self.severity} {self.code}: {self.message}"
        return one_line(f"{text} — {self.remedy}" if self.remedy else text)

    @property
    def in_spec(self) -> bool:
        """Whether `file` is a field of the TritonModel, and not one of the repository."""
        return _IN_SPEC.match(self.file) is not None

    @property
    def model(self) -> str:
        """The model's directory, or an empty string if the finding is about the repository."""
        if match := _IN_SPEC.match(self.file):
            return match[1] or ""
        return "" if self.file == "." else self.file.split("/", 1)[0]


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Returns the distinct findings, sorted by severity (errors first), then by file and position."""
    return tuple(sorted(set(findings), key=lambda f: (_RANK[f.severity], f.file, f.line or 0, f.column or 0, f.code)))
