"""The canary: a group of servers that gets a part of the requests. Pure.

docs/decisions/0055-canary.md
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.canary import MAX_BY_SERVERS
from triton_operator.api.status import TritonModelStatus
from triton_operator.api.types import TritonModel
from triton_operator.pods import Pod
from triton_operator.pods.group import Group
from triton_operator.render import Facts

_ALL = 100


def canary(model: TritonModel, _: TritonModelStatus, servers: int) -> Iterator[Group]:
    """Yields the group of spec.canary."""
    wanted = model.spec.canary
    if wanted is None:
        return
    spec = model.spec
    changed: dict[str, Any] = {
        "replicas": servers_of(servers, wanted.weight, by_route=spec.route is not None),
        "autoscaling": None,
    }
    if wanted.model_image is not None:
        changed["model_image"] = spec.model_image.model_copy(update={"reference": wanted.model_image.reference})
    if wanted.server is not None:
        changed["server"] = spec.server.model_copy(update={"image": wanted.server.image})
    if wanted.models is not None:
        changed["models"] = wanted.models
    yield Group(name=names.CANARY, model=model.model_copy(update={"spec": spec.model_copy(update=changed)}))


def servers_of(others: int, weight: int, *, by_route: bool) -> int:
    """Returns the number of servers of a canary with this weight in percent, beside so many other servers.

    With a route it is enough for its share of the requests. Otherwise it makes the share, as near as whole servers can.
    """
    if not others:
        return 0
    if by_route:
        return max(1, math.ceil(others * weight / _ALL))
    weight = min(weight, MAX_BY_SERVERS)  # a spec that is stored may have been accepted by other rules
    return max(1, round(others * weight / (_ALL - weight)))


def with_shares(
    facts: Facts, groups: Sequence[Group], ending: Iterable[Pod], children: Iterable[Mapping[str, Any]]
) -> Facts:
    """Returns `facts` with what the routes and the Service send to the canary.

    - `groups`: all, that of every TritonModel first. `ending`: the pods of no group that are still there.
    - `children`: the objects that the TritonModel has.

    It gets nothing before one of its servers is ready, and its Service is there. When it isn't wanted any longer, the
    Service leaves out its servers before they end.
    """
    spec = groups[0].model.spec
    if spec.canary is None:
        return replace(facts, serves_all=not any(pod.is_alive for pod in ending))
    ready = any(pod.is_ready for group in groups if group.name == names.CANARY for pod in group.living)
    service = (kinds.SERVICE.kind, names.deployment(groups[0].model.name, names.CANARY))
    reachable = any((obj["kind"], obj["metadata"]["name"]) == service for obj in children)
    weight = spec.canary.weight if ready and reachable else 0
    return replace(facts, canary_weight=weight, serves_all=spec.route is None and spec.canary.weight > 0)
