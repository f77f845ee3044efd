"""The status of a TritonModel of which nothing is changed now."""

from __future__ import annotations

from collections.abc import Sequence

from triton_operator.api.status import KSTATUS, PROGRESSING, READY, TritonModelStatus
from triton_operator.pods import Problem
from triton_operator.pods.group import Servers
from triton_operator.pods.problems import WITH_LOG, problem_of

from .conditions import condition, with_transition_times
from .kstatus import kstatus
from .ready import ready_condition

_LOG_HIDDEN = (
    "a container has ended: kubectl logs --previous says why. The log isn't shown here, because without the spec the "
    "operator doesn't know which values in it are secret"
)


def unread(
    before: TritonModelStatus,
    problem: Problem,
    servers: Sequence[Servers],
    now: str,
    generation: int,
    *,
    unseen: bool,
) -> TritonModelStatus:
    """Returns the status if `problem` prevents reading the spec. The servers keep running, which is all that is known.

    - `servers`: the Deployments and their pods, first that of every TritonModel.
    - `unseen`: whether there may be pods that the operator can't read.
    """
    living = [p for group in servers for p in group.living]
    current = [p for group in servers for p in group.current]
    ready = [p for p in living if p.is_ready]
    if unseen and not ready:
        answers = condition(READY, "Unknown", problem.reason, problem.message)
    else:
        failure = next((p for pod in current if (p := problem_of(pod))), None)
        if failure and failure.reason in WITH_LOG:
            failure = Problem(failure.reason, _LOG_HIDDEN)
        # Without a pod, the spec is why there is none.
        answers = ready_condition(servers, before.entrypoint, ready, failure or (None if current else problem))
    progressing = condition(PROGRESSING, "False", problem.reason, problem.message)
    others = [c.type for c in before.conditions if c.type not in KSTATUS | {READY, PROGRESSING}]
    conditions = [
        answers,
        progressing,
        *(condition(kind, "Unknown", problem.reason, problem.message) for kind in others),
        *kstatus(progressing),
    ]
    return before.model_copy(
        update={
            "conditions": with_transition_times(before.conditions, conditions, now, generation),
            "observed_generation": generation,
            "replicas": len(servers[0].living),
            "ready_replicas": sum(p.is_ready for p in servers[0].living),
        }
    )


def held(before: TritonModelStatus, step: Problem, now: str) -> TritonModelStatus:
    """Returns the status while a spec waits that isn't acted on yet: that of the last one, and the step.

    Its generation is that of the last spec, too.
    """
    progressing = condition(PROGRESSING, "True", step.reason, step.message)
    others = [c for c in before.conditions if c.type not in KSTATUS | {PROGRESSING}]
    if not any(c.type == READY for c in others):
        others = [condition(READY, "False", step.reason, step.message), *others]
    conditions = [*others, progressing, *kstatus(progressing)]
    return before.model_copy(
        update={"conditions": with_transition_times(before.conditions, conditions, now, before.observed_generation)}
    )
