"""The condition ModelsLoaded, and the models that the servers report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from triton_operator.api import names, secrets, server_access
from triton_operator.api.servers import ServerAnswers
from triton_operator.api.status import MODELS_LOADED, Condition, ModelStatus
from triton_operator.api.types import TritonModel
from triton_operator.decisions.decide import ChosenGroup
from triton_operator.decisions.snapshot import Snapshot
from triton_operator.pods import Pod, Problem
from triton_operator.pods.group import Group
from triton_operator.pods.served import expected
from triton_operator.render.network_policy import operator_ports
from triton_repository_check.report import Report

from .conditions import condition
from .models import MAX_MODELS, load_problem, model_states

_REFUSED = (
    "{} is ready, but doesn't answer the operator: a NetworkPolicy or a service mesh with strict mTLS may refuse its "
    "connections. Allow ingress to the ports {} from pods with the label {}: {} in the operator's namespace. Where a "
    "NetworkPolicy denies all, spec.networkPolicy: {{}} allows this, and requests from pods of the namespace"
)
_CLOSED = (
    "the flag {} in spec.server.args closes model-repository to the operator, which has no key, so it doesn't know "
    "which models are loaded. If one doesn't load, the server's log says why: kubectl logs POD -c triton. To have it "
    "here, remove model-repository from the flag, and limit the clients with spec.networkPolicy"
)


def reported_models(group: Group, snapshot: Snapshot, chosen: ChosenGroup) -> tuple[list[ModelStatus], bool]:
    """Returns the models of the servers of this group that answer, and whether these have the current pod template.

    During a rollout the new servers' models count, as soon as one of them answers.

    `chosen`: the decision about the group.
    """
    servers = snapshot.servers
    newest = [p for p in group.current if p.name in servers.indexes]
    answering = newest or [p for p in group.living if p.name in servers.indexes]
    if not answering:
        return [], False
    first = answering[0]
    wanted = expected(group.model, first, group.template, check_report(answering), chosen.facts.lists)
    # Before the next answer of a server, a model that it doesn't list may have been loaded already.
    loading = not chosen.load.refused if chosen.load.left else servers.pending
    indexes = {p.name: servers.indexes[p.name] for p in answering}
    coming = wanted.names if loading else ()
    states = model_states(group.model.name, indexes, wanted, coming, first.shared_memory, servers.load_times)
    return states, bool(newest)


def check_report(pods: Iterable[Pod]) -> Report | None:
    """Returns the first repository check in these pods."""
    return next((report for pod in pods if (report := pod.check_report)), None)


def redacted(model: TritonModel, models: Sequence[ModelStatus]) -> list[ModelStatus]:
    """Returns `models` with sensitive values redacted from Triton's messages."""
    if not any(m.reason for m in models):
        return list(models)
    hidden = secrets.values(model)
    return [m.model_copy(update={"reason": secrets.redact(m.reason, hidden)}) for m in models]


def models_loaded(
    model: TritonModel,
    models: Sequence[ModelStatus],
    problem: Problem | None,
    servers: ServerAnswers,
    ready: Sequence[Pod],
) -> Condition:
    if problem and problem.reason == "RepositoryInvalid":
        return condition(MODELS_LOADED, "False", problem.reason, problem.message)
    unknown = _unusable(servers.unusable)
    if not models:
        if flag := server_access.closes_index(model.spec.server.args):
            return condition(MODELS_LOADED, "Unknown", "APIRestricted", _CLOSED.format(flag))
        if unknown:
            return condition(MODELS_LOADED, "Unknown", "AnswerUnusable", unknown)
        if ready and not servers.indexes and not servers.pending:
            return condition(MODELS_LOADED, "Unknown", "NoServerAnswers", _refused(model, ready[0]))
        return condition(MODELS_LOADED, "Unknown", "NoServerAnswers", "no server answers yet")
    more = "".join(f"; {part}" for part in (unknown, _too_many(models)) if part)
    failed = load_problem(models)
    if failed:
        return condition(MODELS_LOADED, "False", failed.reason, failed.message + more)
    if any(m.state != "READY" for m in models):
        return condition(MODELS_LOADED, "False", "LoadingModels", "the servers are loading their models" + more)
    return condition(MODELS_LOADED, "True", "AllLoaded", "every model is loaded on every server that answers" + more)


def _refused(model: TritonModel, pod: Pod) -> str:
    ports = ", ".join(str(names.PORTS[name]) for name in operator_ports(model))
    return _REFUSED.format(pod.name, ports, names.LABEL_NAME, names.FIELD_MANAGER)


def _unusable(unusable: Mapping[str, str]) -> str:
    """Returns the first server whose answer can't be used, and the reason; "" if there is none."""
    if not unusable:
        return ""
    pod, fault = min(unusable.items())
    count = len(unusable) - 1
    more = f" (the same is true of {count} more server{'s' if count > 1 else ''})" if count else ""
    return f"the repository index of {pod} {fault}{more}"


def _too_many(models: Sequence[ModelStatus]) -> str:
    return f"the operator reports only the first {MAX_MODELS} models" if len(models) >= MAX_MODELS else ""
