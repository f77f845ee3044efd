"""The container in a canary's pods that compares its answers with those of the other servers.

docs/decisions/0059-answers-of-a-canary.md
"""

from __future__ import annotations

from typing import Any

from triton_operator.api import names
from triton_operator.api.types import PodTemplate, TritonModel

from .common import CONTAINER_SECURITY
from .facts import Facts
from .service import endpoint

_RESOURCES = {"cpu": "200m", "memory": "256Mi"}
"""Requests and limits, so that pods keep the QoS class that the server's resources give them. They are enough for a
request and three answers of the largest size (tests/unit/test_answer_comparer.py)."""


def with_container(user: PodTemplate) -> PodTemplate:
    """Returns the user's pod template with the name of this container. The operator adds its other fields.

    So the hash of the spec has it, and the canary's servers are replaced when it comes or goes.
    """
    found = user.spec.get("containers")
    others = found if isinstance(found, list) else []
    return user.model_copy(update={"spec": {**user.spec, "containers": [*others, {"name": names.CONTAINER_ANSWERS}]}})


def containers(model: TritonModel, facts: Facts) -> list[dict[str, Any]]:
    """Returns the container for a canary whose answers are compared; none otherwise."""
    if facts.group != names.CANARY or not model.compares:
        return []
    own = f"http://localhost:{names.PORTS['http']}"
    return [
        {
            "name": names.CONTAINER_ANSWERS,
            "image": facts.tools_image,
            "command": ["python", "-m", "answer_comparison", own, endpoint(model), str(names.ANSWERS_PORT)],
            "ports": [{"name": names.ANSWERS, "containerPort": names.ANSWERS_PORT, "protocol": "TCP"}],
            "resources": {"requests": _RESOURCES, "limits": _RESOURCES},
            "securityContext": CONTAINER_SECURITY,
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
    ]
