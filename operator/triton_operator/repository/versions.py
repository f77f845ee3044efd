"""Triton's versions: which release has which, and since when the fields of config.pbtxt exist."""

from __future__ import annotations

import re
from typing import TypeAlias

Version: TypeAlias = tuple[int, int]
"""Of the server, e.g. (2, 51)."""

_RELEASE = re.compile(r"(\d\d)\.(\d\d)(?!\d)")
_VERSION = re.compile(r"2\.(\d+)(\.\d+)?")
_ANCHOR = (24, 10, 51)
"""Release 24.10 is server 2.51; a release a month, a minor version each."""
_FIRST_YEAR = 20
_SKIPPED = ((25, 7),)
"""Releases without a minor version of their own."""

SINCE: dict[str, tuple[int, int]] = {
    "ModelEnsembling.Step.model_namespace": (30, 33),
    "ModelSequenceBatching.StrategyOldest.preserve_ordering": (36, 38),
    "ModelSequenceBatching.State.use_growable_memory": (38, 41),
    "ModelSequenceBatching.State.use_same_buffer_for_input_output": (38, 41),
    "ModelSequenceBatching.iterative_sequence": (38, 41),
    "ModelConfig.runtime": (41, 42),
    "ModelInput.is_non_linear_format_io": (48, 49),
    "ModelOutput.is_non_linear_format_io": (48, 49),
    "ModelConfig.model_metrics": (51, 52),
    "ModelEnsembling.max_inflight_requests": (62, 63),
}
"""Field → the newest minor version without it, and the oldest with it, of those whose schemas were compared: the ones
in tritonclient 2.30 to 2.73, not all of them. Fields that 2.30 had are not listed."""


def parse(text: str) -> Version:
    """`2.51`, `2.51.0` or the release `24.10` as the server's version. Raises ValueError."""
    if match := _VERSION.fullmatch(text):
        return 2, int(match[1])
    if (match := _RELEASE.fullmatch(text)) and _exists(match):
        return of_release(int(match[1]), int(match[2]))
    raise ValueError(f"{text!r} is neither a version of the server, e.g. 2.51, nor a release, e.g. 24.10")


def of_release(year: int, month: int) -> Version:
    """The server's version in the release of that month, e.g. (24, 10) → (2, 51)."""
    months = (year - _ANCHOR[0]) * 12 + month - _ANCHOR[1]
    return 2, _ANCHOR[2] + months - sum((year, month) >= skipped for skipped in _SKIPPED)


def of_image(reference: str) -> Version | None:
    """The server's version by the tag of an image of NVIDIA's, or one built like it: `…/tritonserver:24.10-py3`.
    None where name and tag don't tell."""
    name, _, tag = reference.partition("@")[0].rpartition("/")[2].partition(":")
    match = _RELEASE.match(tag)
    known = name.startswith("tritonserver") and match is not None and _exists(match)
    return of_release(int(match[1]), int(match[2])) if known and match else None


def _exists(release: re.Match[str]) -> bool:
    """Whether there may be such a release: they are named by year and month, the first of 2.x in 2020."""
    return int(release[1]) >= _FIRST_YEAR and 1 <= int(release[2]) <= 12


def unknown(field: str, server: Version) -> Version | None:
    """Since when `field`, e.g. `ModelConfig.runtime`, exists, where `server` doesn't know it yet; else None. Where the
    table leaves it open it counts as known."""
    without, having = SINCE.get(field, (-1, -1))
    return (2, having) if server <= (2, without) else None


def python_of(server: Version) -> tuple[int, int] | None:
    """The Python of the stock image's python backend, where it is known: 3.10 up to release 24.10, then 3.12."""
    if (2, 33) <= server <= (2, 51):
        return 3, 10
    return (3, 12) if server > (2, 51) else None
