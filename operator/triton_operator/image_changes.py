"""Decides how a changed model image reaches the running servers, with rollout.strategy InPlace. Pure.

One server after the other gets the new files and loads the model that differs. The first failure replaces the servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .render.delivery import CHANGES_MAX
from .status.image_change import Attempt

_MARGIN_SECONDS = 60
"""Clocks of nodes may differ by this from the operator's."""


@dataclass(frozen=True)
class Running:
    """A server.

    - `uid`, `pod`: of its pod. `reference`: the model image that `fetch` of the pod has.
    - `started`: whether the server has started. `ready`: whether its entrypoint answers.
    - `attempt`: the last change of its model image.
    """

    uid: str
    pod: str
    reference: str
    started: bool
    attempt: Attempt | None = None
    ready: bool = True


@dataclass(frozen=True)
class Decision:
    """What to do now.

    - `start`: uid of the pod of which to change the model image, and the number of this change.
    - `record`: uids of pods whose change is done, with the model image to write into `fetch`.
    - `rollout`: why the servers must be replaced; "" if they needn't be.
    - `left`: number of servers without the model image of the spec.
    - `wait`: seconds until a change must have ended, and its server must be ready; None if that is so.
    - `done`: whether a server has got the model image of the spec in this way.
    """

    start: tuple[str, int] | None = None
    record: tuple[tuple[str, str], ...] = ()
    rollout: str = ""
    left: int = 0
    wait: float | None = None
    done: bool = False


def decide(servers: Sequence[Running], wanted: str, now: float, fallen: Sequence[Running] = ()) -> Decision:
    """Returns the next step. `now`: seconds since 1970. `fallen`: pods that have failed, e.g. that were evicted."""
    done = [s for s in servers if s.attempt and s.attempt.state == "Done"]
    record = tuple((s.uid, s.attempt.reference) for s in done if s.attempt and s.attempt.reference != s.reference)
    have = {s.uid: s.reference for s in servers} | dict(record)
    running = [s for s in servers if s.attempt and s.attempt.state == "Running"]
    behind = [s for s in servers if have[s.uid] != wanted or s in running]
    base = Decision(record=record, left=len(behind), done=any(have[s.uid] == wanted for s in done))
    for one in fallen:
        # The next pod would end in the same way.
        if one.attempt and one.attempt.reference == wanted and one.attempt.state != "Done":
            return replace(base, rollout=f"{one.pod}: the pod has ended during the change of its model image")
    for one in servers:
        if why := _failure(one, wanted, now):
            return replace(base, rollout=f"{one.pod}: {why}")
    if running:
        ends = [s.attempt.end + _MARGIN_SECONDS - now for s in running if s.attempt]
        return replace(base, wait=max(min(ends), 0.0))
    following = next((s for s in sorted(behind, key=lambda s: s.pod) if s.started), None)
    if following is None:
        return base
    for one in done:
        # The next server would end in the same way.
        if one.attempt and not one.ready and have[one.uid] == wanted:
            rest = one.attempt.end + _MARGIN_SECONDS - now
            why = "" if rest > 0 else f"{one.pod}: the server isn't ready after the change of its model image"
            return replace(base, rollout=why, wait=max(rest, 0.0))
    number = following.attempt.number + 1 if following.attempt else 1
    if number > CHANGES_MAX:
        return replace(base, rollout=f"the model image of {following.pod} has been changed {CHANGES_MAX} times")
    return replace(base, start=(following.uid, number))


def _failure(server: Running, wanted: str, now: float) -> str:
    """Returns why the change of this server to `wanted` has failed; "" if it hasn't."""
    attempt = server.attempt
    if attempt is None:
        return ""
    if attempt.state == "Failed" and attempt.reference == wanted and server.reference != wanted:
        return attempt.message
    if attempt.state == "Failed" and not attempt.over:
        # For example while its image can't be pulled. It would change the files when the image arrives.
        return f"the change to {attempt.reference} can't be stopped: {attempt.message}"
    if attempt.state == "Running" and now > attempt.end + _MARGIN_SECONDS:
        return "the change of its model image has not ended in time"
    return ""
