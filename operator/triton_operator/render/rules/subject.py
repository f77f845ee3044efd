"""The properties of a TritonModel that its rules depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from triton_operator import engines
from triton_operator.api import names, thresholds
from triton_operator.api.series import FAILURES_PER_REQUEST
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.api.types import Monitoring, TritonModel
from triton_operator.promql import Scope, begins, equal, none_of, unequal
from triton_operator.render.envoy_gateway import most
from triton_operator.render.facts import Facts
from triton_operator.render.pod_monitor import copies_of


@dataclass(frozen=True)
class Subject:
    """The properties of a TritonModel that its rules depend on.

    - `entrypoint`: "" if it is unknown; the rules then count all models of the server.
    - `max_replicas`: None without an autoscaler. `to_zero`: whether it may remove the last server. `load_wakes`:
      whether the load then has to start the first one.
    - `health_rate`: the health requests per second and server that count in the demand.
    - `runbooks`: base URL of the runbooks.
    - `canary`: the series of the canary's servers; None without a canary.
    - `enforced`: how many times max-qps the Gateway lets pass in a minute at most; 0 if it doesn't limit requests.
    """

    scope: Scope
    metrics_job: str
    entrypoint: str
    ensemble: bool
    decoupled: tuple[str, ...]
    thresholds: Mapping[ThresholdKey, float]
    monitoring: Monitoring
    max_replicas: int | None
    utilization: float
    predict: bool
    to_zero: bool
    load_wakes: bool
    health_rate: float
    startup_seconds: int
    runbooks: str
    enforced: float
    canary: Scope | None = None

    @property
    def of_versions(self) -> str:
        """Returns the matcher of the demands of all versions, without that of the canary, which is a part of them."""
        return none_of("version", "", names.CANARY) if self.canary else unequal("version", "")

    @property
    def entry(self) -> tuple[str, ...]:
        """Returns the matchers of the entry model's series."""
        return (equal("model", self.entrypoint),) if self.entrypoint else ()

    def of_operator(self, metric: str, *matchers: str) -> str:
        """Returns a selector for the operator's metric about this TritonModel.

        The label `job` excludes series with the same name from other targets.
        """
        return self.scope.pick(metric, equal("job", self.metrics_job), *matchers)

    @property
    def has_peak(self) -> bool:
        """Returns whether bursts of seconds have a limit. Its rules cost as much as those of the demand."""
        return thresholds.has_limit(self.thresholds, (thresholds.MAX_QPS_PEAK,))

    @property
    def token_counter(self) -> str:
        return self.monitoring.token_counter or ""

    @property
    def scrape_seconds(self) -> int:
        return self.monitoring.scrape_seconds

    @property
    def slow_seconds(self) -> int:
        """Returns the interval of the rules that read long ranges, and of alerts that wait minutes: at least 60 s."""
        return max(self.monitoring.evaluation_seconds, 60)

    def once(self, failures: str) -> str:
        """Returns the rate of failed requests, from the rate of the entry model's failure counter."""
        return f"{failures} / {FAILURES_PER_REQUEST}" if self.ensemble else failures


def subject(model: TritonModel, facts: Facts) -> Subject:
    scaling, engine, health = model.scaling, engines.of(model), model.spec.health_request
    to_zero = scaling is not None and not scaling.min
    counted = health is not None and facts.entrypoint in ("", health.model)
    return Subject(
        scope=Scope(model.namespace, model.name),
        metrics_job=facts.settings.metrics_job,
        entrypoint=facts.entrypoint,
        ensemble=facts.ensemble and bool(facts.entrypoint),
        decoupled=facts.decoupled,
        thresholds=facts.thresholds or thresholds.effective({}, 1),
        monitoring=model.spec.monitoring,
        max_replicas=scaling.max if scaling else None,
        utilization=scaling.utilization if scaling else 1,
        predict=bool(scaling and scaling.predict),
        to_zero=to_zero,
        load_wakes=to_zero and engine is not None and engine.load_wakes,
        health_rate=1 / health.every_seconds if health and counted else 0.0,
        startup_seconds=model.spec.rollout.startup_seconds,
        runbooks=facts.settings.runbooks,
        enforced=most(facts.enforced.per_second) if facts.enforced and facts.enforced.is_live else 0.0,
        canary=_canary(model) if model.spec.canary else None,
    )


def _canary(model: TritonModel) -> Scope:
    """Returns the series of the canary's servers. Those of copies have a name of their own."""
    if model.copies:
        return Scope(model.namespace, copies_of(model.name))
    pods = names.deployment(model.name, names.CANARY) + "-"
    return Scope(model.namespace, model.name, (begins("pod", pods),))
