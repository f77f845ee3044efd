"""Decides how a change of spec.server.loadModels reaches the running servers. Pure.

One server after the other loads what is new, and then unloads what is gone. It stops at the first server that can't.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .api.servers import UNLOADED, Change, ChangeOutcome, Index, RunningServer
from .render.facts import Models


@dataclass(frozen=True)
class LoadDecision:
    """What to do now.

    - `start`: the change to make on a server, which is a no-op if the prober is making it or has made it.
    - `rollout`: why the servers must be replaced; "" if they needn't be.
    - `failure`: why the change has stopped; "" if it hasn't. `refused`: whether Triton has refused a model.
    - `left`: number of servers that are still to be changed.
    """

    start: tuple[RunningServer, Change] | None = None
    rollout: str = ""
    failure: str = ""
    refused: bool = False
    left: int = 0


def change(index: Index, desired: Sequence[str], record: Models, entrypoint: str, seconds: float) -> Change:
    """Returns the change that gives a server the models of the spec. What others load and unload stays as it is.

    - `index`: the server's models. One that it couldn't load when it started isn't loaded again.
    - `seconds`: maximum time for each model.
    """
    states: dict[str, set[tuple[str, str]]] = {}
    for entry in index:
        states.setdefault(entry.name, set()).add((entry.state, entry.reason if entry.state == "UNAVAILABLE" else ""))

    def is_absent(name: str) -> bool:
        unloaded = set() if name in record.listed else {("UNAVAILABLE", UNLOADED)}
        return states.get(name, set()) <= {("", ""), *unloaded}

    load = tuple(name for name in desired if is_absent(name))
    unload = tuple(name for name in record.all if name not in desired and ("READY", "") in states.get(name, set()))
    return Change(load, unload, tuple(dict.fromkeys((*desired, entrypoint))), seconds)


def decide(
    servers: Iterable[tuple[RunningServer, Change | None]], outcomes: Mapping[str, ChangeOutcome]
) -> LoadDecision:
    """Returns the next step.

    - `servers`: the servers that have started, each with the change that it needs; None if that isn't known yet.
    - `outcomes`: uid → the result of the change to the models of the spec on this server so far.
    """
    pairs = sorted(servers, key=lambda pair: (pair[0].uid not in outcomes, pair[0].pod))
    start: tuple[RunningServer, Change] | None = None
    left, refusal, rollout, silent = 0, "", "", ""
    for server, needed in pairs:
        outcome = outcomes.get(server.uid)
        if outcome is not None and outcome.state == "Done":
            continue
        if outcome is None and needed is not None and not (needed.load or needed.unload):
            continue
        left += 1
        message = f"{server.pod}: {outcome.message}" if outcome else ""
        if outcome is not None and outcome.state == "Refused":
            refusal = refusal or message
        elif outcome is not None and outcome.state == "Stuck":
            rollout = rollout or message
        elif outcome is not None and outcome.state == "Unreachable":
            silent = silent or message
        elif outcome is None and needed is None:
            silent = silent or f"{server.pod}: the operator doesn't know its models yet"
        elif start is None and needed is not None:
            start = server, needed
    if rollout:
        return LoadDecision(rollout=rollout, left=left)
    if refusal:
        return LoadDecision(failure=refusal, refused=True, left=left)
    return LoadDecision(start, failure=silent, left=left)
