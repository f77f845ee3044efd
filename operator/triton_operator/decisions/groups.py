"""The groups of servers that a TritonModel should have. Pure.

docs/decisions/0048-groups-of-servers.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from triton_operator.api.status import TritonModelStatus
from triton_operator.api.types import TritonModel
from triton_operator.pods.group import Group

from .canary import canary

Policy = Callable[[TritonModel, TritonModelStatus, int], Iterable[Group]]
"""Returns further groups, each with its name and its model, from the TritonModel, its last status, and the number of
servers that the group without a name should have.

The name of a group never changes, and is a DNS label. What a policy has to remember is in the status.
"""

POLICIES: tuple[Policy, ...] = (canary,)


def wanted(
    model: TritonModel, before: TritonModelStatus, servers: int, policies: Iterable[Policy] = POLICIES
) -> tuple[Group, ...]:
    """Returns the groups, that of every TritonModel first.

    `before`: the last status. `servers`: the number of servers that the first group should have.
    """
    return (Group(model=model), *(group for policy in policies for group in policy(model, before, servers)))
