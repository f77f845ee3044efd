"""Judges a canary: raises its weight step by step while it is good, and takes it away if it is worse. Pure.

docs/decisions/0056-gate-of-a-canary.md
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from triton_operator.api import names
from triton_operator.api.canary import Canary, Gate
from triton_operator.api.series import FAILURES_PER_REQUEST
from triton_operator.api.servers import History
from triton_operator.api.status import ENDED, GOOD, REFUSED, WORSE, AnswersStatus, CanaryStatus, timestamp
from triton_operator.pods import Pod
from triton_operator.pods.group import Group
from triton_operator.render import Facts, routes

from .answers import answers
from .canary import at_weight, next_weight, progress_of, share
from .comparison import Counts, Evidence, corrected, observe
from .snapshot import Snapshot

_ENDED = 3
"""So many ends of one server in a round make a canary worse."""
_ROUTES = frozenset(child.kind.kind for child in routes.CHILDREN)
_ABOUT_FILTERS = frozenset({"UnsupportedValue", "IncompatibleFilters"})
"""Reasons for which a Gateway's controller doesn't accept a route with a filter that it doesn't know."""
_EXPECTED = 20
"""If so many requests are expected, it is no chance that none arrives."""
_MILLISECONDS = 1000
_ALL = 100


@dataclass(frozen=True)
class Judged:
    """What is known of a canary. A new leader has the progress from the status, and begins a round without evidence.

    `restarts`: pod → how often its server had restarted when the round began.
    """

    progress: CanaryStatus
    evidence: Evidence
    restarts: Mapping[str, int] = field(default_factory=dict)

    def misses(self, percent: int) -> bool:
        """Returns whether nothing has arrived, although this percentage of the requests should, or of their copies."""
        requests = self.evidence.all
        return not requests.first.requests and requests.second.requests * percent >= _EXPECTED * _ALL


def judge(snapshot: Snapshot, groups: Sequence[Group], before: Judged | None, elapsed: float) -> Judged | None:
    """Returns what is known of the canary now; None without one.

    - `groups`: all, that of every TritonModel first, the canary's with the desired pod template.
    - `before`: what was known of it, or of an earlier one.
    - `elapsed`: the prober's monotonic clock, in seconds.
    """
    canary = snapshot.model.spec.canary
    own = next((group for group in groups if group.name == names.CANARY), None)
    if canary is None or own is None:
        return None
    progress = progress_of(canary, own.model, before.progress if before else snapshot.before.canary)
    if progress.verdict in ENDED:
        return Judged(progress, Evidence(elapsed))
    gets = share(progress.weight, groups, snapshot.children, snapshot.facts.entrypoint)
    # A Gateway may also refuse the route because no server of the canary is ready.
    if canary.mirror and gets and (why := _refusal(snapshot)) is not None:
        refused = {"verdict": REFUSED, "weight": 0, "since": _time(snapshot), "message": why}
        return Judged(progress.model_copy(update=refused), Evidence(elapsed))
    if canary.compare_percent:
        progress = progress.model_copy(update={"answers": _answers(snapshot, own, progress)})
    if not gets and progress.since is not None:
        progress = progress.model_copy(update={"since": None})
    if before is None or before.progress.tried != progress.tried or not progress.weight:
        return _begin(groups, progress, Evidence(elapsed))
    histories, main = snapshot.histories or {}, groups[0]
    own_failures = _failures_per_request(own, snapshot.facts)
    evidence = observe(
        before.evidence,
        {pod: corrected(history, own_failures) for pod, history in _of(histories, own.current).items()},
        _of(histories, main.living),
        elapsed,
        1 + canary.gate.max_slowdown_percent / _ALL,
        times=snapshot.facts.entrypoint not in snapshot.facts.decoupled,
    )
    judged = replace(before, progress=progress, evidence=evidence)
    if progress.since is None and gets == progress.weight:
        judged = _begin(groups, progress.model_copy(update={"since": _time(snapshot)}), evidence.next_round(elapsed))
    if (why := _why_worse(judged, canary, own.current, main.living)) is not None:
        worse = {"verdict": WORSE, "weight": 0, "since": _time(snapshot), "message": why}
        return Judged(progress.model_copy(update=worse), evidence)
    if gets == progress.weight and _is_good(judged, canary.gate, snapshot.time, elapsed):
        after = _after_good(progress, canary, evidence)
        return _begin(groups, after, evidence.next_round(elapsed))
    return judged


def _answers(snapshot: Snapshot, own: Group, progress: CanaryStatus) -> AnswersStatus | None:
    """Returns what its answers have in common with the others'; what was known, until that of each server is read."""
    known = snapshot.comparisons
    if any(pod.is_ready and pod.name not in known for pod in own.current):
        return progress.answers
    return answers([known[pod.name] for pod in own.current if pod.name in known], progress.answers)


def _refusal(snapshot: Snapshot) -> str | None:
    """Returns why the Gateway doesn't copy requests; None if it does, or if that isn't known.

    By the standard it answers every request with an error until the route has no copies any more.
    """
    lacking = {kind for kind, path in snapshot.facts.cluster.lacks if path == routes.PERCENT.path}
    if lacking:
        return f"this cluster's CRD of {min(lacking)} doesn't know percent, which {routes.PERCENT.since} and later have"
    copying = (obj for obj in snapshot.children if obj["kind"] in _ROUTES and routes.copies(obj))
    for said in (said for obj in copying for said in routes.refusals(obj)):
        if said["type"] == "PartiallyInvalid" or said.get("reason") in _ABOUT_FILTERS:
            return f"the Gateway refused a route that copies them: {said.get('message') or 'no reason given'}"
    return None


def _begin(groups: Iterable[Group], progress: CanaryStatus, evidence: Evidence) -> Judged:
    """Returns the beginning of a round."""
    return Judged(progress, evidence, {pod.name: pod.restarts for group in groups for pod in group.living})


def _failures_per_request(own: Group, facts: Facts) -> float:
    """Returns how often the canary's servers count what the others count once: an ensemble counts a failure twice."""
    lines = [line for pod in own.current if (report := pod.check_report) for line in report.models]
    ensemble = next((line.ensemble for line in lines if line.name == facts.entrypoint), facts.ensemble)
    if ensemble == facts.ensemble:
        return 1.0
    return FAILURES_PER_REQUEST if ensemble else 1 / FAILURES_PER_REQUEST


def _time(snapshot: Snapshot) -> str:
    return timestamp(snapshot.time)[:19] + "Z"


def _of(histories: Mapping[str, History], pods: Iterable[Pod]) -> dict[str, History]:
    return {pod.name: histories[pod.name] for pod in pods if pod.name in histories}


def _is_good(judged: Judged, gate: Gate, time: datetime, elapsed: float) -> bool:
    """Returns whether the canary is good at its step. One that was good at the last step is judged in rounds."""
    progress, evidence = judged.progress, judged.evidence
    if progress.since is None:
        return False
    seconds = (time - datetime.fromisoformat(progress.since)).total_seconds()
    if progress.verdict == GOOD:
        seconds = elapsed - evidence.began
    requests = min(evidence.all.first.requests, evidence.all.second.requests)
    return seconds >= gate.step_seconds and requests >= gate.min_requests and not evidence.is_doubtful


def _after_good(progress: CanaryStatus, canary: Canary, evidence: Evidence) -> CanaryStatus:
    """Returns the progress of a canary that is good at its step."""
    if progress.verdict == GOOD:
        return progress
    message = f"good with {part(canary, progress.weight)}: {_failures(evidence)}{_times(evidence)}"
    progress = progress.model_copy(update={"message": message})
    if (weight := next_weight(canary, progress.weight)) is None:
        return progress.model_copy(update={"verdict": GOOD})
    return at_weight(progress, canary, weight)


def part(canary: Canary, percent: int) -> str:
    """Returns what the canary gets, as words."""
    return f"{'copies of ' if canary.mirror else ''}{percent} % of the requests"


def _why_worse(judged: Judged, canary: Canary, own: Iterable[Pod], others: Iterable[Pod]) -> str | None:
    """Returns why the canary is worse than the others; None if it isn't, or if that isn't known."""
    evidence, at = judged.evidence, f"with {part(canary, judged.progress.weight)}"
    if evidence.is_worse:
        fails = evidence.fails >= evidence.is_slow
        what = _failures(evidence) if fails else f"slower{_times(evidence) or ': it answers none that wait'}"
        return f"{at}: {what}"
    ended, ended_others = (
        max((pod.restarts - judged.restarts.get(pod.name, 0) for pod in pods), default=0) for pods in (own, others)
    )
    if ended >= _ENDED and ended > 2 * ended_others:
        return f"{at}: a server of it ended {ended} times, and none of the other servers more than {ended_others} times"
    return None


def _failures(evidence: Evidence) -> str:
    first, second = evidence.all.first, evidence.all.second
    return f"{_share(first)} of its requests failed, and {_share(second)} of the other servers'"


def _share(counts: Counts) -> str:
    ratio = counts.failed / counts.requests if counts.requests else 0
    return f"{counts.failed:,.0f} of {counts.requests:,.0f} ({_ALL * ratio:.2g} %)"


def _times(evidence: Evidence) -> str:
    """Returns the mean times as words, to be appended; "" if one isn't known."""
    first, second = evidence.all.first.mean, evidence.all.second.mean
    if first is None or second is None:
        return ""
    return f"; a request takes {_milliseconds(first)} on average, and {_milliseconds(second)} at the other servers"


def _milliseconds(seconds: float) -> str:
    return f"{_MILLISECONDS * seconds:,.3g} ms" if seconds < 1 else f"{seconds:,.3g} s"
