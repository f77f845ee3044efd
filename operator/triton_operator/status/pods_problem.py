"""The first problem that keeps servers of the current spec from answering."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from triton_operator.api import secrets
from triton_operator.api.status import ModelStatus
from triton_operator.pods import Problem
from triton_operator.pods.group import Group
from triton_operator.pods.problems import WITH_LOG, problem_of

from .models import load_problem

_RECENTLY = timedelta(minutes=10)
"""How long an evicted server explains that one is missing."""


def pods_problem(groups: Sequence[Group], models: Sequence[ModelStatus], now: str) -> Problem | None:
    """Returns the first problem that keeps servers of the current spec from answering; None if there is none."""
    if problem := next((p for group in groups if (p := _group_problem(group, now))), None):
        return problem
    failed_models = load_problem(models)
    if failed_models and not all(p.is_ready for group in groups for p in group.current):
        return failed_models
    return None


def _group_problem(group: Group, now: str) -> Problem | None:
    """Returns the first problem of the pods of this group; None if there is none."""
    if group.refusal is not None:
        return of_group(group, Problem("PodsRefused", f"the API server refuses the pods: {group.refusal}"))
    current = group.current
    problems = [p for pod in current if (p := problem_of(pod))]
    if not problems and sum(p.is_ready for p in current) < group.desired:
        # What a node was short of, the next server may use, too.
        recent = datetime.fromisoformat(now) - _RECENTLY
        evicted = [p for p in group.pods if p.is_evicted and p.is_current(group.template) and p.ended_at > recent]
        problems = [p for pod in evicted if (p := problem_of(pod))]
    if not problems:
        return None
    first = problems[0]
    if first.reason in WITH_LOG:
        first = Problem(first.reason, secrets.redact(first.message, secrets.values(group.model)))
    return of_group(group, first)


def of_group(group: Group, problem: Problem) -> Problem:
    """Returns the problem with the name of the group, if it has one."""
    return Problem(problem.reason, f"group {group.name}: {problem.message}") if group.name else problem
