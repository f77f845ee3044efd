"""The ServiceAccount of the servers, which has no permissions."""

from __future__ import annotations

from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.types import TritonModel

from .child import Child
from .choices import Choices
from .common import obj


def service_accounts(model: TritonModel, choices: Choices) -> list[dict[str, Any]]:
    """Returns a ServiceAccount whose token isn't mounted, because Triton doesn't use the API server.

    Also returns the account of earlier versions, as long as servers run as it.
    """
    accounts = [names.account(model.name), *([model.name] if choices.former_account else [])]
    return [obj(model, kinds.SERVICE_ACCOUNT, name, automountServiceAccountToken=False) for name in accounts]


CHILD = Child(kinds.SERVICE_ACCOUNT, service_accounts, always=True)
