"""Versions of Triton's releases, and the versions that added fields of config.pbtxt."""

from __future__ import annotations

import re
from typing import TypeAlias

Version: TypeAlias = tuple[int, int]
"""A version of the server, e.g. (2, 51)."""

_RELEASE = re.compile(r"(\d\d)\.(\d\d)(?!\d)")
_VERSION = re.compile(r"2\.(\d+)(\.\d+)?")
_ANCHOR = (24, 10, 51)
"""Release 24.10 is server 2.51. Each month has a release with a new minor version."""
_FIRST_YEAR = 20
_SKIPPED = ((25, 7),)
"""Months without a new minor version."""

_IN_IMAGES = ("dali", "fil", "onnxruntime", "openvino", "python", "pytorch", "tensorflow", "tensorrt", "tensorrtllm",
              "vllm")  # fmt: skip
_ONE_BACKEND: dict[str, tuple[str, ...]] = {
    "-vllm-python-py3": ("vllm", "python"),
    "-trtllm-python-py3": ("tensorrtllm", "python"),
    "-pyt-python-py3": ("pytorch", "python"),
    "-py3-min": (),
}
"""The ends of the tags of NVIDIA's images, and their backends."""
_NO_TENSORFLOW = (25, 3)
"""The first release without the backend for TensorFlow."""

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
"""Field → the newest known minor version without it, and the oldest known one with it.

From the schemas of some tritonclient versions between 2.30 and 2.73. Leaves out fields that 2.30 has.
"""


ONNX = ((45, 9, 20), (46, 10, 21), (56, 10, 22), (60, 11, 23), (66, 13, 25), (71, 13, 26))
"""The minor version of a server, and the newest IR version and opset that its ONNX Runtime loads, oldest first.

The releases of ONNX Runtime are from Triton's docs/introduction/compatibility.md, the limits from trials with these
releases.
"""


def parse(text: str) -> Version:
    """Parses a server version, `2.51` or `2.51.0`, or a release, `24.10`. Raises ValueError."""
    if match := _VERSION.fullmatch(text):
        return 2, int(match[1])
    if (match := _RELEASE.fullmatch(text)) and _exists(match):
        return of_release(int(match[1]), int(match[2]))
    raise ValueError(f"{text!r} is neither a server version, e.g. 2.51, nor a release, e.g. 24.10")


def of_release(year: int, month: int) -> Version:
    """Returns the server version of a release, e.g. (24, 10) → (2, 51)."""
    months = (year - _ANCHOR[0]) * 12 + month - _ANCHOR[1]
    return 2, _ANCHOR[2] + months - sum((year, month) >= skipped for skipped in _SKIPPED)


def release(server: Version | None) -> str:
    """Returns the release of a server version, e.g. (2, 51) → 24.10; `RELEASE` if it is unknown."""
    releases = ((year, month) for year in range(_FIRST_YEAR, 100) for month in range(1, 13))
    return next((f"{year}.{month:02}" for year, month in releases if of_release(year, month) == server), "RELEASE")


def of_image(reference: str) -> Version | None:
    """Returns the server version of an image `…/tritonserver:24.10-py3`; None if its name and tag don't contain it."""
    name, _, tag = reference.partition("@")[0].rpartition("/")[2].partition(":")
    match = _RELEASE.match(tag)
    is_release = name.startswith("tritonserver") and match is not None and _exists(match)
    return of_release(int(match[1]), int(match[2])) if is_release and match else None


def lacks(reference: str) -> tuple[str, ...]:
    """Returns the backends that an image of NVIDIA doesn't have, by its tag; nothing for other images.

    From the table of images in Triton's docs/introduction/release_notes: `-py3` has all but the two for LLMs, and up to
    25.02 TensorFlow; the others have one backend and that for Python; `-min` has none.
    """
    name, _, tag = reference.partition("@")[0].partition(":")
    match = _RELEASE.match(tag)
    if name != "nvcr.io/nvidia/tritonserver" or match is None or not _exists(match):
        return ()
    only = _ONE_BACKEND.get(tag[match.end() :])
    if only is not None:
        return tuple(backend for backend in _IN_IMAGES if backend not in only)
    gone = ("tensorflow",) if (int(match[1]), int(match[2])) >= _NO_TENSORFLOW else ()
    return (*gone, "tensorrtllm", "vllm") if tag[match.end() :] == "-py3" else ()


def _exists(release: re.Match[str]) -> bool:
    """Whether the release has a valid year and month. The first release of 2.x is in 2020."""
    return int(release[1]) >= _FIRST_YEAR and 1 <= int(release[2]) <= 12


def unknown(field: str, server: Version) -> Version | None:
    """Returns the version that added `field`, e.g. `ModelConfig.runtime`, if `server` is older; else None.

    If the table doesn't show whether `server` has the field, returns None.
    """
    without, having = SINCE.get(field, (-1, -1))
    return (2, having) if server <= (2, without) else None


def onnx_of(server: Version) -> tuple[int, int] | None:
    """Returns the newest IR version and opset that the server's ONNX Runtime loads; None if unknown."""
    if server > (2, ONNX[-1][0]):
        return None
    return next(((ir, opset) for minor, ir, opset in reversed(ONNX) if server >= (2, minor)), None)


def python_of(server: Version) -> tuple[int, int] | None:
    """Returns the Python of NVIDIA's server image: 3.10 up to release 24.10, then 3.12; None if unknown."""
    if (2, 33) <= server <= (2, 51):
        return 3, 10
    return (3, 12) if server > (2, 51) else None
