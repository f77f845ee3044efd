"""The condition Canary: whether the canary gets its part of the requests."""

from __future__ import annotations

from collections.abc import Sequence

from triton_operator.api import kinds, names
from triton_operator.api.status import CANARY, Condition, ModelStatus
from triton_operator.decisions.snapshot import Snapshot
from triton_operator.pods.group import Group
from triton_operator.pods.problems import step_of
from triton_operator.render import endpoint

from .conditions import condition
from .pods_problem import pods_problem


def canary(
    snapshot: Snapshot,
    groups: Sequence[Group],
    models: Sequence[Sequence[ModelStatus]],
    routed: Condition | None,
    now: str,
) -> Condition | None:
    """Canary: whether the canary gets its part of the requests; None without one.

    `groups`: with the desired pod templates. `models`: those of each group. `routed`: the condition Routed.
    """
    wanted = snapshot.model.spec.canary
    own, its_models = next(
        (both for both in zip(groups, models, strict=True) if both[0].name == names.CANARY), (None, ())
    )
    if wanted is None or own is None:
        return None
    ready, others = (sum(pod.is_ready for pod in group.living) for group in (own, snapshot.main))
    if not ready:
        return _not_ready(own, its_models, now)
    servers = f"{ready} of {own.desired} server{_s(own.desired)} {'is' if ready == 1 else 'are'} ready"
    if not wanted.weight:
        return condition(CANARY, "True", "NoRequests", f"weight is 0, so the canary gets no requests; {servers}")
    if routed is None:
        share = 100 * ready / (ready + others)
        return condition(
            CANARY, "True", "ByServers",
            f"about {share:.0f} % of the connections to {endpoint(snapshot.model)} go to the canary, because it has "
            f"{ready} of {ready + others} ready servers; weight is {wanted.weight} %. A Gateway (spec.route) would "
            "choose for each request",
        )  # fmt: skip
    if snapshot.child_named(kinds.SERVICE, names.deployment(snapshot.model.name, names.CANARY)) is None:
        return condition(
            CANARY, "False", "CanaryStarting", f"the canary gets no requests until it has a Service; {servers}"
        )
    if routed.status != "True":
        return condition(
            CANARY, "False", "RouteNotAccepted",
            "no Gateway has accepted the newest route yet, see the condition Routed; until then it sends requests by "
            f"the former one, if there is one; {servers}",
        )  # fmt: skip
    return condition(
        CANARY, "True", "Weighted",
        f"{wanted.weight} % of the requests through the Gateway go to the canary ({servers}); clients of "
        f"{endpoint(snapshot.model)} get the other servers",
    )  # fmt: skip


def _s(number: int) -> str:
    return "" if number == 1 else "s"


def _not_ready(own: Group, models: Sequence[ModelStatus], now: str) -> Condition:
    """Returns why no server of the canary is ready."""
    if own.deployment is not None and not own.desired:
        return condition(CANARY, "False", "ScaledToZero", "the canary has no servers while the others are scaled to 0")
    if problem := pods_problem([own], models, now):
        said = problem.message.removeprefix(f"group {own.name}: ")
        return condition(CANARY, "False", "CanaryNotReady", f"no server of the canary is ready: {said}")
    waiting = next((step_of(pod).message for pod in own.current), "waiting for its first pod")
    return condition(CANARY, "False", "CanaryStarting", f"the canary gets no requests yet: {waiting}")
