"""The canary: a group of servers that gets a part of the requests. gate.py says how large a part. Pure.

docs/decisions/0055-canary.md
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.canary import MAX_BY_SERVERS, Canary
from triton_operator.api.status import ENDED, CanaryStatus, TritonModelStatus
from triton_operator.api.types import TritonModel
from triton_operator.pods import Pod
from triton_operator.pods.group import Group
from triton_operator.render import Facts, answers, routes
from triton_operator.render.kept_template import digest, spec_hash

_ALL = 100
_ROUTES = frozenset(child.kind.kind for child in routes.CHILDREN)


def canary(model: TritonModel, before: TritonModelStatus, servers: int) -> Iterator[Group]:
    """Yields the group of spec.canary."""
    own, wanted = of_canary(model), model.spec.canary
    if own is None or wanted is None:
        return
    weight = progress_of(wanted, own, before.canary).weight
    number = servers_of(servers, weight, by_route=model.spec.route is not None)
    spec = own.spec.model_copy(update={"replicas": number})
    yield Group(name=names.CANARY, model=own.model_copy(update={"spec": spec}))


def of_canary(model: TritonModel) -> TritonModel | None:
    """Returns the TritonModel as the servers of spec.canary should have it; None without one."""
    spec, wanted = model.spec, model.spec.canary
    if wanted is None:
        return None
    changed: dict[str, Any] = {"autoscaling": None}
    if wanted.model_image is not None:
        changed["model_image"] = spec.model_image.model_copy(update={"reference": wanted.model_image.reference})
    if wanted.server is not None:
        changed["server"] = spec.server.model_copy(update={"image": wanted.server.image})
    if wanted.models is not None:
        changed["models"] = wanted.models
    if model.compares:
        changed["pod_template"] = answers.with_container(spec.pod_template)
    return model.model_copy(update={"spec": spec.model_copy(update=changed)})


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


def progress_of(canary: Canary, own: TritonModel, before: CanaryStatus | None) -> CanaryStatus:
    """Returns how far the canary has come.

    - `own`: the TritonModel as the canary's servers should have it.
    - `before`: the last known progress, perhaps of another canary.

    Other servers begin at the first step, and so do those that got copies. The same with another plan keep the weight
    that they have earned.
    """
    servers = f"{spec_hash(own, '')}-"
    plan: list[object] = [canary.weights, canary.gate.model_dump(mode="json", exclude_defaults=True)]
    if canary.mirror and own.spec.route is not None:
        # Who was good with copies of requests hasn't answered one. Another Gateway may copy what the last one refused.
        servers = f"copies-{servers}"
        plan.append(own.spec.route.gateway.model_dump(mode="json", exclude_defaults=True))
    tried = f"{servers}{digest(plan)}"
    if before is not None and before.tried == tried:
        return before
    weight = canary.weights[0]
    if before is not None and before.verdict not in ENDED and before.tried.startswith(servers):
        weight = next((weight for weight in canary.weights if weight >= before.weight), canary.weight)
    return at_weight(CanaryStatus(tried=tried, weight=weight, step=""), canary, weight)


def at_weight(progress: CanaryStatus, canary: Canary, weight: int) -> CanaryStatus:
    """Returns the progress of a canary that has come to this weight, of which nothing is known at it."""
    step = f"{sum(earlier <= weight for earlier in canary.weights)}/{len(canary.weights)}"
    return progress.model_copy(update={"weight": weight, "step": step, "since": None})


def next_weight(canary: Canary, weight: int) -> int | None:
    """Returns the weight of the step after the one with this weight; None if that is the last one."""
    return next((following for following in canary.weights if following > weight), None)


def is_judged(model: TritonModel, before: TritonModelStatus) -> bool:
    """Returns whether the requests of the canary are counted. `before`: the last status."""
    own, wanted = of_canary(model), model.spec.canary
    return own is not None and wanted is not None and progress_of(wanted, own, before.canary).verdict not in ENDED


def lacks(entrypoint: str, pods: Iterable[Pod]) -> bool:
    """Returns whether the repository of one of these servers that is ready has no model of this name."""
    reports = [report for pod in pods if pod.is_ready and (report := pod.check_report) is not None]
    return bool(entrypoint) and any(
        len(report.models) == report.model_count and entrypoint not in {line.name for line in report.models}
        for report in reports
    )


def _may_serve(own: Group, entrypoint: str) -> bool:
    """Returns whether requests may go to the canary: not while servers of another one live, which it replaces."""
    return len(own.current) == len(own.living) and not lacks(entrypoint, own.living)


def _may_copy(children: Iterable[Mapping[str, Any]]) -> bool:
    """Returns whether the routes copy requests already, or are accepted."""
    there = [obj for obj in children if obj["kind"] in _ROUTES]
    return bool(there) and all(routes.copies(obj) or routes.accepted(obj) for obj in there)


def share(weight: int, groups: Sequence[Group], children: Iterable[Mapping[str, Any]], entrypoint: str) -> int:
    """Returns the percentage that the canary gets of `weight`.

    - `groups`: all, that of every TritonModel first, the canary's with the desired pod template.
    - `children`: the objects that the TritonModel has.
    - `entrypoint`: the model that clients call; "" if it isn't known.

    It gets nothing before its Service is there, and of a route only what the servers that are ready are enough for. The
    copying begins when the route without copies is accepted, so that it is known what a refusal is about.
    """
    main, own = groups[0], next((group for group in groups if group.name == names.CANARY), None)
    if own is None or not _may_serve(own, entrypoint):
        return 0
    ready = sum(pod.is_ready for pod in own.living)
    if main.model.spec.route is None:
        return weight if ready >= servers_of(main.desired, weight, by_route=False) else 0
    service, children = (kinds.SERVICE.kind, names.deployment(main.model.name, names.CANARY)), tuple(children)
    if not any((obj["kind"], obj["metadata"]["name"]) == service for obj in children):
        return 0
    if main.model.copies and not _may_copy(children):
        return 0
    return min(weight, _ALL * ready // max(1, main.desired))


def with_shares(
    facts: Facts,
    groups: Sequence[Group],
    ending: Iterable[Pod],
    children: Iterable[Mapping[str, Any]],
    weight: int | None,
) -> Facts:
    """Returns `facts` with what the routes and the Service send to the canary.

    `groups`, `children`: see `share`. `ending`: the pods of no group that are still there. `weight`: what the canary
    should get; None without one.

    When it isn't wanted any longer, the Service leaves out its servers before they end.
    """
    own = next((group for group in groups if group.name == names.CANARY), None)
    if weight is None or own is None:
        return replace(facts, serves_all=not any(pod.is_alive for pod in ending))
    by_servers = groups[0].model.spec.route is None and weight > 0
    return replace(
        facts,
        canary_weight=share(weight, groups, children, facts.entrypoint),
        serves_all=by_servers and _may_serve(own, facts.entrypoint),
    )
