"""Whose rules they are, and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from triton_operator.api import thresholds
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.api.types import Monitoring, TritonModel
from triton_operator.render.choices import Choices

from .promql import Scope, equal

FAILURES_PER_REQUEST = 2
"""By how much one failed request of an ensemble raises the ensemble's failure counter."""


@dataclass(frozen=True)
class Subject:
    """One TritonModel, as far as its rules depend on it. `entrypoint`: "" is unknown; every model of the server then
    counts. `max_replicas`: None where nothing scales. `runbooks`: where the pages about alerts are."""

    scope: Scope
    metrics_job: str
    entrypoint: str
    ensemble: bool
    thresholds: Mapping[ThresholdKey, float]
    monitoring: Monitoring
    max_replicas: int | None
    utilization: float
    predict: bool
    startup_seconds: int
    runbooks: str

    @property
    def entry(self) -> tuple[str, ...]:
        """The matchers of the entry model's series."""
        return (equal("model", self.entrypoint),) if self.entrypoint else ()

    def of_operator(self, metric: str, *matchers: str) -> str:
        """The series of a metric that the operator has of this TritonModel. Whoever may have pods scraped could have
        series of that name and these labels; of another job they count for nothing."""
        return self.scope.pick(metric, equal("job", self.metrics_job), *matchers)

    @property
    def token_counter(self) -> str:
        return self.monitoring.token_counter or ""

    @property
    def scrape_seconds(self) -> int:
        return self.monitoring.scrape_seconds

    @property
    def slo_seconds(self) -> int:
        """How often the error budget's windows are evaluated: no oftener, because each reads three days of samples."""
        return max(self.monitoring.evaluation_seconds, 30)

    def once(self, failures: str) -> str:
        """The rate of failed requests, from the rate of the entry model's failure counter."""
        return f"{failures} / {FAILURES_PER_REQUEST}" if self.ensemble else failures


def subject(model: TritonModel, choices: Choices) -> Subject:
    scaling = model.scaling
    return Subject(
        scope=Scope(model.namespace, model.name),
        metrics_job=choices.metrics_job,
        entrypoint=choices.entrypoint,
        ensemble=choices.ensemble and bool(choices.entrypoint),
        thresholds=choices.thresholds or thresholds.effective({}, 1),
        monitoring=model.spec.monitoring,
        max_replicas=scaling.max if scaling else None,
        utilization=scaling.utilization if scaling else 1,
        predict=bool(scaling and scaling.predict),
        startup_seconds=model.spec.rollout.startup_seconds,
        runbooks=choices.runbooks,
    )
