"""Replaces servers whose memory grows, before it reaches the limit. Pure.

docs/decisions/0065-replace-servers-before-the-limit.md
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from triton_operator.api import names
from triton_operator.api.servers import MemoryGrowth
from triton_operator.api.status import timestamp
from triton_operator.model_changes import LoadDecision
from triton_operator.pods import Pod
from triton_operator.pods.group import Group
from triton_operator.pods.replacements import in_progress
from triton_operator.render import Facts, template_hash
from triton_operator.render.sizes import rollout_numbers

from .memory import SilentServers
from .repair import shortest_start
from .snapshot import Snapshot

_DELAYS = timedelta(minutes=1)
"""How long the poll of the servers, the reconcile and a pull of images from a cache may take."""
_RESERVE = 2
"""The replacement begins when this multiple of its time is left, or earlier."""
_LEAST_STARTS, _LEAST_ROLLOUTS = 10, 3
"""A server must live for this multiple of the time that one replacement takes, and of that of all servers: growth is
found when a third of the life is left."""
_LONGEST_WAIT = timedelta(days=1)


@dataclass(frozen=True)
class Replacement:
    """What to do about servers whose memory grows.

    - `value`: the value that ANNOTATION_MEMORY gets, which replaces them now; "" if they aren't replaced now.
    - `after`: seconds until they may have to be replaced; None if the prober or a watch reports it.
    - `note`: what comes next, as a clause for the status; "" if no memory grows, or nothing is to be done about it.
    - `warning`: why memory that grows would have no effect; "" if it would.
    """

    value: str = ""
    after: float | None = None
    note: str = ""
    warning: str = ""


NO_REPLACEMENT = Replacement()
_REPLACED = "the operator replaces all servers now: Progressing says how far it is"


def replace_growing(
    snapshot: Snapshot, facts: Facts, load: LoadDecision, silent: SilentServers, before: str = ""
) -> Replacement:
    """Returns the replacement of the servers, or why there is none now.

    It is a rollout of the Deployment, so as many servers answer meanwhile as spec.rollout demands. A server that has
    nothing to do with the growth is replaced too: it is of the same model.

    The servers of a canary aren't replaced. Their growth is what the canary shows.

    - `facts`: those of the first group, if its servers aren't replaced for this.
    - `load`: the decision about the models of running servers.
    - `silent`: knows how long servers have taken to start.
    - `before`: the last `Replacement.value`; "" if there was none.
    """
    model, group, now = snapshot.model, snapshot.main, snapshot.time
    if model.spec.memory_growth != "Replace":
        return NO_REPLACEMENT
    if group.current and not any(pod.limit(names.CONTAINER_SERVER, "memory") for pod in group.current):
        return Replacement(
            warning="spec.memoryGrowth: Replace has no effect, because the servers have no memory limit: set "
            "spec.server.resources.limits.memory"
        )
    growing = _growing(group, snapshot.growing or {})
    if not growing:
        return NO_REPLACEMENT
    if obstacle := _obstacle(group, facts, load):
        return Replacement(note=obstacle)
    one = _seconds(group, silent)
    every = _steps(group) * one
    least = max(_LEAST_STARTS * one, _LEAST_ROLLOUTS * every)
    slow = [(full, pod) for full, pod in growing if full - _began(pod) >= least]
    if not slow:
        full, first = growing[0]
        return Replacement(
            note="the servers aren't replaced before, because new ones would reach the limit as fast: "
            f"{first.name} {_minutes(full - _began(first))} after its start, and to replace all takes {_minutes(every)}"
        )
    full, first = slow[0]
    nearly_full = [pod for _, pod in slow if (snapshot.growing or {})[pod.name].nearly_full]
    # A page that isn't true can't make it a loop.
    earliest = _began(first) + least / _LEAST_ROLLOUTS
    due = max(now if nearly_full else full - _RESERVE * every, earliest)
    if due <= now:
        # The same value as long as the server lives: a write that is refused or undone is tried again, and isn't new.
        same = any(before.endswith(f" {pod.name}") for _, pod in growing)
        return Replacement(before if same else f"{timestamp(now)} {first.name}", note=_REPLACED)
    return Replacement(
        after=min(due - now, _LONGEST_WAIT).total_seconds(),
        note=f"all servers are replaced at {due:%Y-%m-%d %H:%M} UTC, because {first.name} has run for a short time only"
        if nearly_full
        else "all servers are replaced when 90 % of the limit is used, or earlier if that would be too late",
    )


def _growing(group: Group, growing: Mapping[str, MemoryGrowth]) -> list[tuple[datetime, Pod]]:
    """Returns the servers of the group whose memory grows, each with the time, the first one first."""
    found = ((growing[pod.name].full, pod) for pod in group.living if pod.is_ready and pod.name in growing)
    return sorted(found, key=lambda entry: (entry[0], entry[1].name))


def _obstacle(group: Group, facts: Facts, load: LoadDecision) -> str:
    """Returns why servers aren't replaced now; "" if nothing is in the way."""
    if group.is_paused:
        return "the servers aren't replaced before, because the Deployment is paused"
    if in_progress(group):
        return _REPLACED
    if load.left:
        return "the servers aren't replaced while the models of one change"
    if not group.is_complete or template_hash(group.model, facts) != group.template:
        return "the servers aren't replaced for it during a rollout, or while one is missing or not ready"
    if rollout_numbers(group.model.spec, group.desired)[1] >= group.desired:
        return (
            "the servers aren't replaced before, because none would answer meanwhile: set spec.rollout.maxSurge to 1, "
            "and maxUnavailable to 0"
        )
    return ""


def _began(pod: Pod) -> datetime:
    return pod.server_began or pod.created


def _seconds(group: Group, silent: SilentServers) -> timedelta:
    """Returns about how long the replacement of one server takes."""
    rollout = group.model.spec.rollout
    start = shortest_start(group, silent)
    return timedelta(seconds=(rollout.startup_seconds if start is None else start) + rollout.drain_seconds) + _DELAYS


def _steps(group: Group) -> int:
    return math.ceil(group.desired / sum(rollout_numbers(group.model.spec, group.desired)))


def _minutes(time: timedelta) -> str:
    return f"{max(1, round(time.total_seconds() / 60))} min"
