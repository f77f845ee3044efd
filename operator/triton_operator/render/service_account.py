"""The ServiceAccount of the servers, which has no permissions."""

from __future__ import annotations

from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.types import TritonModel

from .child_type import Child
from .common import obj
from .facts import Facts


def service_accounts(model: TritonModel, _: Facts) -> list[dict[str, Any]]:
    """Returns a ServiceAccount whose token isn't mounted, because Triton doesn't use the API server."""
    return [obj(model, kinds.SERVICE_ACCOUNT, names.account(model.name), automountServiceAccountToken=False)]


CHILD = Child(kinds.SERVICE_ACCOUNT, service_accounts, always=True)
