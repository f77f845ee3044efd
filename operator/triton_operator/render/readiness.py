"""The readiness probe of the server: Triton's own answer, and that to spec.healthRequest (readiness.sh).

docs/decisions/0041-health-request.md
"""

from __future__ import annotations

from importlib import resources
from typing import Any
from urllib.parse import quote

from triton_operator.api.types import ON_IPV6, TritonModel
from triton_repository_check.model import SERVED_AT

from . import start
from .delivery import BUSYBOX


def probe(model: TritonModel) -> dict[str, Any]:
    """Returns the readiness probe."""
    request = model.spec.health_request
    if request is None:
        return {
            "httpGet": {"path": path(model), "port": "http"},
            "periodSeconds": 2,
            "failureThreshold": 3,
            # As long as `is_ready` in model.py may take.
            "timeoutSeconds": 5,
        }
    host = "::1" if ON_IPV6 in model.spec.server.args else "127.0.0.1"
    file, seconds = f"{SERVED_AT}/{request.file}", str(request.timeout_seconds)
    arguments = [host, path(model), health_path(model), file, seconds]
    return {
        "exec": {"command": [BUSYBOX, "sh", "-c", _SCRIPT, "readiness", *arguments]},
        "periodSeconds": request.every_seconds,
        "failureThreshold": 3,
        # Three requests, two of them with at least 5 s, and the time that a busy node needs.
        "timeoutSeconds": request.timeout_seconds + 2 * max(5, request.timeout_seconds) + 5,
    }


def path(model: TritonModel) -> str:
    """Returns the path of Triton's readiness: of the entrypoint, or of all models if the spec has none."""
    return f"{_model_path(model.spec.entrypoint)}/ready" if model.spec.entrypoint else start.READY


def health_path(model: TritonModel) -> str:
    """Returns the path of the model to which the probe sends the health request, or "" if the spec has none."""
    return _model_path(model.spec.health_request.model) if model.spec.health_request else ""


def _model_path(name: str) -> str:
    return f"/v2/models/{quote(name, safe='')}"


_SCRIPT = start.without_comments(resources.files(__package__ or "").joinpath("readiness.sh").read_text())
