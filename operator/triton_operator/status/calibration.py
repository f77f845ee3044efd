"""The result of `kubectl triton calibrate`: what the annotation contains, and whether it still describes the servers.

The command writes the annotation with the rights of its user, and the operator shows it in the status. So the operator
reads it as untrusted text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import AwareDatetime, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from triton_operator.api import names
from triton_operator.api.fields import Base
from triton_operator.api.status import CalibrationStatus, Text, timestamp
from triton_operator.api.thresholds import VALUE_PATTERN

Object = Mapping[str, Any]
_Digest = Annotated[str, Field(max_length=200)]
_Positive = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
MODEL_IMAGE, SERVER_IMAGE = "the model image", "the server image"
_NODES = ("nodeSelector", "affinity", "runtimeClassName")
_AGAIN = "run kubectl triton calibrate again"
_HEX = 16
_SHUTDOWN = ("--exit-timeout-secs=", "--grpc-max-connection-age")
"""Flags for the end of a server, which spec.rollout sets."""


class Evidence(Base):
    """A result with what was measured. The times of `p99` and `target_p99` are in seconds.

    - `template`: digests of the parts of the pod template that decide about the capacity (see `parts`).
    - `images`: digests of the images that ran, by what they are.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid")
    time: AwareDatetime
    max_qps_per_replica: Annotated[str, Field(pattern=VALUE_PATTERN)]
    target_p99: _Positive
    p99: Annotated[list[_Positive], Field(min_length=1, max_length=8)]
    at_least: bool = False
    measurements: Annotated[int, Field(ge=1, le=1000)]
    template: Annotated[dict[str, _Digest], Field(max_length=8)]
    images: Annotated[dict[str, _Digest], Field(max_length=8)]

    def text(self) -> str:
        """Returns the value of the annotation."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), separators=(",", ":"))


def parts(template: Object) -> dict[str, str]:
    """Returns a digest for each part of a pod template that decides how much one server handles."""
    spec = template["spec"]
    server: Object = next((c for c in spec["containers"] if c["name"] == names.CONTAINER_SERVER), {})
    flags = [flag for flag in server.get("args") or [] if not flag.startswith(_SHUTDOWN)]
    values = {
        SERVER_IMAGE: server.get("image"),
        "the resources": server.get("resources"),
        "the flags or the environment": [*(server.get(field) for field in ("command", "env", "envFrom")), flags],
        "the choice of nodes": [spec.get(field) for field in _NODES],
    }
    return {name: _digest(value) for name, value in values.items()}


def status(
    text: str | None, template: Object | None, running: Mapping[str, Collection[str]]
) -> CalibrationStatus | None:
    """Returns what the annotation `text` says, and whether it is still true. None without an annotation.

    - `template`: the pod template of the servers; None if there is none yet.
    - `running`: the digests of the images that the servers run, by what they are. An unknown one isn't compared.
    """
    if text is None:
        return None
    evidence = _read(text)
    if evidence is None:
        message = f"the annotation {names.ANNOTATION_CALIBRATION} isn't a result of kubectl triton calibrate: remove it"
        return CalibrationStatus(current=False, message=message)
    now = parts(template) if template else {}
    differs = [name for name, digest in evidence.template.items() if now.get(name, digest) != digest]
    differs += [
        name
        for name, digest in evidence.images.items()
        if name not in differs and _replaced(digest, running.get(name, ()))
    ]
    at_least = "at least " if evidence.at_least else ""
    return CalibrationStatus(
        max_qps_per_replica=evidence.max_qps_per_replica,
        target=_milliseconds(evidence.target_p99),
        time=timestamp(evidence.time),
        current=not differs,
        message=(
            f"one server handled {at_least}{evidence.max_qps_per_replica} requests/s with p99 of "
            f"{_milliseconds(min(evidence.p99))} to {_milliseconds(max(evidence.p99))}"
            + (f"; since then {' and '.join(differs)} changed: {_AGAIN}" if differs else "")
        ),
    )


def _read(text: str) -> Evidence | None:
    """Returns the evidence in an annotation; None if it is something else."""
    if len(text) > names.CALIBRATION_MAX:
        return None
    try:
        return Evidence.model_validate_json(text)
    except ValidationError:
        return None


def _replaced(measured: str, running: Collection[str]) -> bool:
    return bool(measured and running) and set(running) != {measured}


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:_HEX]


def _milliseconds(seconds: float) -> Text:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
