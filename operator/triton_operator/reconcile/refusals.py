"""Refusals by the API server, as values in the outcome of a reconcile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from triton_operator.api import secrets
from triton_operator.cluster.errors import ApiError
from triton_operator.decisions.outcome import Outcome
from triton_operator.pods import Problem

T = TypeVar("T")


def attempt(outcome: Outcome, kind: str, action: str, step: Callable[[], T], otherwise: T) -> T:
    """Returns the result of `step`, or `otherwise` if the API server refuses it.

    - `kind`: under which to report the refusal. `action`: the step as a phrase, such as "to scale the Deployment".

    Raises ApiError if the API server doesn't answer.
    """
    try:
        return step()
    except ApiError as error:
        refuse(outcome, kind, error, f"the API server refuses {action}: {error.message}")
        return otherwise


def refuse(outcome: Outcome, kind: str, error: ApiError, message: str, reason: str = "ApplyRefused") -> None:
    """Records that the API server refused a write.

    Raises `error` if it is no answer, or if the reconcile began with an old state of an object (Stale).
    """
    if error.unanswered:
        raise error
    problem = Problem(reason, secrets.redact(message, outcome.hidden))
    outcome.refuse(kind, problem, may_end=error.code == 403 or error.transient)
