"""Decides how a change of spec.server.loadModels reaches the running servers. Pure.

One server after the other loads what is new, and then unloads what is gone. It stops at the first server that can't.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .api.servers import Change, Outcome, Server


@dataclass(frozen=True)
class Behind:
    """A server with other models than the spec.

    It has `models`, and `perhaps` others, because a change was begun whose result isn't known.
    """

    server: Server
    models: tuple[str, ...]
    perhaps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Decision:
    """What to do now.

    - `start`: the change to make on a server, which is a no-op if the prober is making it or has made it.
    - `record`: servers whose models change, with the models that they surely have, and the ones that they perhaps have.
      Write this before the start, so that the next decision knows what was begun.
    - `rollout`: why the servers must be replaced; "" if they needn't be.
    - `failure`: why the change has stopped; "" if it hasn't. `refused`: whether Triton has refused a model.
    - `left`: number of servers that are still to be changed.
    """

    start: tuple[Server, Change] | None = None
    record: tuple[tuple[Server, tuple[str, ...], tuple[str, ...]], ...] = ()
    rollout: str = ""
    failure: str = ""
    refused: bool = False
    left: int = 0


def change(behind: Behind, wanted: Sequence[str], entrypoint: str, seconds: float) -> Change:
    """Returns the change that gives a server the models of the spec. `seconds`: maximum time for each model."""
    load = tuple(name for name in wanted if name not in behind.models)
    unload = tuple(name for name in (*behind.models, *behind.perhaps) if name not in wanted)
    return Change(load, unload, tuple(dict.fromkeys((*wanted, entrypoint))), seconds)


def decide(
    behind: Iterable[Behind],
    outcomes: Mapping[str, Outcome],
    wanted: Sequence[str],
    entrypoint: str,
    seconds: float,
) -> Decision:
    """Returns the next step.

    - `behind`: the servers that have started and have other models than the spec.
    - `outcomes`: uid → the result of the change to `wanted` on this server so far.
    """
    ordered = sorted(behind, key=lambda one: (one.server.uid not in outcomes, one.server.pod))
    record: list[tuple[Server, tuple[str, ...], tuple[str, ...]]] = []
    left, silent = 0, ""
    start: tuple[Server, Change] | None = None
    refusal = rollout = ""
    for one in ordered:
        outcome = outcomes.get(one.server.uid)
        if outcome is not None and outcome.state == "Done":
            record.append((one.server, tuple(wanted), ()))
            continue
        left += 1
        words = f"{one.server.pod}: {outcome.message}" if outcome else ""
        if outcome is not None and outcome.state == "Refused":
            refusal = refusal or words
        elif outcome is not None and outcome.state == "Stuck":
            rollout = rollout or words
        elif outcome is not None and outcome.state == "Unreachable":
            silent = silent or words
        elif start is None:
            start = one.server, change(one, wanted, entrypoint, seconds)
            if outcome is None:
                record.append((one.server, *begun(one, start[1])))
    if rollout:
        return Decision(record=tuple(record), rollout=rollout, left=left)
    if refusal:
        return Decision(record=tuple(record), failure=refusal, refused=True, left=left)
    return Decision(start, tuple(record), failure=silent, left=left)


def begun(behind: Behind, change: Change) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the models that a server surely has during a change, and the ones that it perhaps has."""
    sure = tuple(name for name in behind.models if name not in change.unload)
    perhaps = (*change.unload, *behind.perhaps, *change.load)
    return sure, tuple(name for name in dict.fromkeys(perhaps) if name not in sure)


def same(models: Collection[str], wanted: Collection[str]) -> bool:
    """Returns whether a server has exactly the models of the spec, in any order."""
    return set(models) == set(wanted)
