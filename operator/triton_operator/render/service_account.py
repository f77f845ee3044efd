"""The identity of the servers: one that can do nothing."""

from __future__ import annotations

from typing import Any

from triton_operator.api import kinds
from triton_operator.api.types import TritonModel

from .child import Child
from .common import obj


def service_account(model: TritonModel) -> dict[str, Any]:
    """A ServiceAccount whose token is mounted nowhere: Triton has no business with the API server."""
    return obj(model, kinds.SERVICE_ACCOUNT, automountServiceAccountToken=False)


CHILD = Child(kinds.SERVICE_ACCOUNT, lambda model, _: [service_account(model)], always=True)
