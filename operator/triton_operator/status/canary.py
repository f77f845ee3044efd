"""The condition Canary: whether the canary gets its part of the requests, and what was found of it."""

from __future__ import annotations

from collections.abc import Sequence

from triton_operator.api import kinds, names
from triton_operator.api.canary import Canary
from triton_operator.api.status import CANARY, GOOD, REFUSED, WORSE, CanaryStatus, Condition, ModelStatus
from triton_operator.decisions.canary import lacks, next_weight, share
from triton_operator.decisions.gate import Judged, part
from triton_operator.decisions.snapshot import Snapshot
from triton_operator.pods import Problem
from triton_operator.pods.group import Group
from triton_operator.pods.problems import step_of
from triton_operator.render import endpoint

from .conditions import condition
from .pods_problem import pods_problem


def ended(progress: CanaryStatus) -> Problem | None:
    """Returns why a canary gets no requests any more, and what to do; None if it gets some."""
    if progress.verdict == WORSE:
        return Problem(
            "CanaryWorse",
            f"the canary gets no requests since {progress.since}, because it was worse {progress.message}. To try "
            "again change spec.canary; to end it run kubectl triton abort",
        )
    if progress.verdict == REFUSED:
        return Problem(
            "MirrorRefused",
            f"the canary gets no copies of requests since {progress.since}, because {progress.message}. To try again "
            "change spec.canary or the Gateway; to give it requests remove spec.canary.mirror, or run kubectl triton "
            "abort",
        )
    return None


def canary(
    snapshot: Snapshot,
    groups: Sequence[Group],
    models: Sequence[Sequence[ModelStatus]],
    routed: Condition | None,
    judged: Judged | None,
    now: str,
) -> Condition | None:
    """Canary: whether the canary gets its part of the requests; None without one.

    `groups`: with the desired pod templates. `models`: those of each group. `routed`: the condition Routed. `judged`:
    what is known of it.
    """
    wanted = snapshot.model.spec.canary
    own, its_models = next(
        (both for both in zip(groups, models, strict=True) if both[0].name == names.CANARY), (None, ())
    )
    if wanted is None or own is None or judged is None:
        return None
    progress = judged.progress
    if (over := ended(progress)) is not None:
        return condition(CANARY, "False", over.reason, over.message)
    if lacks(snapshot.facts.entrypoint, own.living):
        return condition(
            CANARY, "False", "CanaryLacksEntrypoint",
            f"the canary gets no requests, because its repository has no model {snapshot.facts.entrypoint}, which "
            "clients call",
        )  # fmt: skip
    ready, others = (sum(pod.is_ready for pod in pods) for pods in (own.current, snapshot.main.living))
    if not ready or len(own.current) < len(own.living):
        return _not_ready(own, its_models, now)
    servers = f"{ready} of {own.desired} server{_s(own.desired)} {'is' if ready == 1 else 'are'} ready"
    if not wanted.weight:
        return condition(CANARY, "True", "NoRequests", f"weight is 0, so the canary gets no requests; {servers}")
    if routed is None:
        connections = 100 * ready / (ready + others)
        return condition(
            CANARY, "True", "ByServers",
            f"about {connections:.0f} % of the connections to {endpoint(snapshot.model)} go to the canary, because it "
            f"has {ready} of {ready + others} ready servers; weight is {progress.weight} %. A Gateway (spec.route) "
            f"would choose for each request. {_verdict(wanted, progress)}",
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
    gets = share(progress.weight, groups, snapshot.children, snapshot.facts.entrypoint)
    what = "copies" if wanted.mirror else "requests"
    if judged.misses(gets):
        return condition(
            CANARY, "False", "NothingArrives",
            f"no {what} arrive at the canary ({servers}), although it should get {part(wanted, gets)} through the "
            "Gateway, and the other servers answer requests: check that clients use the Gateway"
            f"{', and that it supports RequestMirror' if wanted.mirror else ''}",
        )  # fmt: skip
    if wanted.mirror:
        return condition(
            CANARY, "True", "Mirrored",
            f"copies of {gets} % of the requests through the Gateway go to the canary ({servers}); all clients get the "
            f"answers of the other servers. {_verdict(wanted, progress)}{_compared(wanted, progress)}",
        )  # fmt: skip
    return condition(
        CANARY, "True", "Weighted",
        f"{gets} % of the requests through the Gateway go to the canary ({servers}); clients of "
        f"{endpoint(snapshot.model)} get the other servers. {_verdict(wanted, progress)}",
    )  # fmt: skip


def _verdict(wanted: Canary, progress: CanaryStatus) -> str:
    """Returns what was found of a canary that gets requests, and what comes next, as a sentence."""
    if progress.verdict == GOOD:
        first = "; to give it requests before, remove spec.canary.mirror" if wanted.mirror else ""
        return f"It is {progress.message}. To make it the spec run kubectl triton promote{first}"
    following = next_weight(wanted, progress.weight)
    after = "then it can be promoted" if following is None else f"the next one has {following} %"
    earlier = f"It was {progress.message}. " if progress.message else ""
    gate = wanted.gate
    return (
        f"{earlier}Step {progress.step.replace('/', ' of ')} is undecided: it takes at least {gate.step_seconds} s and "
        f"{gate.min_requests} requests, also at the other servers, in which it is as good as they are; {after}"
    )


def _compared(wanted: Canary, progress: CanaryStatus) -> str:
    """Returns how many of its answers are equal, as a sentence to be appended; "" if none are to be compared."""
    if not wanted.compare_percent:
        return ""
    found = progress.answers
    if found is None:
        return ". No answer was compared yet: HTTP requests through the Gateway are needed"
    varying = f", and {found.varying:,} vary" if found.varying else ""
    said = f" ({found.message})" if found.message else ""
    return f". {found.equal:,} of {found.compared:,} compared answers are equal{varying}{said}"


def _s(number: int) -> str:
    return "" if number == 1 else "s"


def _not_ready(own: Group, models: Sequence[ModelStatus], now: str) -> Condition:
    """Returns why no server of the canary is ready."""
    if own.deployment is not None and not own.desired:
        return condition(CANARY, "False", "ScaledToZero", "the canary has no servers while the others are scaled to 0")
    if problem := pods_problem([own], models, now):
        said = problem.message.removeprefix(f"group {own.name}: ")
        return condition(CANARY, "False", "CanaryNotReady", f"no server of the canary is ready: {said}")
    waiting = next(
        (step_of(pod).message for pod in own.current if not pod.is_ready),
        "waiting for the servers of the previous canary to stop" if own.living else "waiting for its first pod",
    )
    return condition(CANARY, "False", "CanaryStarting", f"the canary gets no requests yet: {waiting}")
