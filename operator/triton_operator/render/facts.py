"""The input of rendering that isn't in the spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from triton_operator.api import names
from triton_operator.api.kinds import Kind
from triton_operator.api.thresholds import ThresholdKey

Delivery = Literal["Copy", "ImageVolume"]


@dataclass(frozen=True)
class Models:
    """Models of spec.server.loadModels, now and before.

    - `listed`: the models that servers load when they start.
    - `others`: further models that servers may have, because the spec had them.
    """

    listed: tuple[str, ...]
    others: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Both."""
        return (*self.listed, *self.others)


COUNTED_BY = ("Gateway", "Proxy", "Nothing", "Later")
"""Who counts requests for a limit, the best first: all proxies of the Gateway together with Envoy Gateway's rate limit
service, or each by itself. Later: nothing counts until the Gateway accepts the policy, which it refuses without a
limit, too."""


@dataclass(frozen=True)
class Enforced:
    """A limit above which the Gateway rejects requests.

    - `per_second`: the limit, in requests per second.
    - `counted_by`: see COUNTED_BY. `wanted`: the same, of the operator's settings; the Gateway has refused it if
      `counted_by` differs.
    - `is_live`: whether the Gateway has accepted a limit, not necessarily this one.
    """

    per_second: float
    counted_by: str = "Proxy"
    wanted: str = "Proxy"
    is_live: bool = False


@dataclass(frozen=True)
class RenderSettings:
    """What the operator's settings say about the rendered objects.

    - `operator_namespace`: the operator's namespace, which a NetworkPolicy must admit.
    - `metrics_job`: the label `job` of the operator's metrics in Prometheus.
    - `sample_limit`: the maximum number of samples of one scrape of a server.
    - `runbooks`: base URL of the alerts' runbooks.
    - `rate_limit_service`: whether Envoy Gateway has a rate limit service.
    - `engines`: those of the engines, by the environment variable.
    """

    operator_namespace: str = names.FIELD_MANAGER
    metrics_job: str = names.METRICS_JOB
    sample_limit: int = names.SAMPLE_LIMIT
    runbooks: str = names.RUNBOOKS
    rate_limit_service: bool = False
    engines: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Capabilities:
    """What the cluster has.

    - `monitoring`: whether it has the CRDs of prometheus-operator.
    - `missing`: the optional kinds that it doesn't have.
    - `openshift`: whether it sets the user and the groups of each namespace's pods itself, and refuses fixed ones.
    - `kubernetes`: its major and minor version; (0, 0) if it isn't known.
    - `lacks`: fields that its CRDs don't know, as the child's kind and `NewerField.path`.
    """

    monitoring: bool = True
    missing: frozenset[Kind] = frozenset()
    openshift: bool = False
    kubernetes: tuple[int, int] = (0, 0)
    lacks: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class NewTemplate:
    """The decision to render a new pod template.

    `replaced`, `memory`: the values of ANNOTATION_REPLACED and ANNOTATION_MEMORY in it.
    """

    replaced: str = ""
    memory: str = ""


@dataclass(frozen=True)
class KeptTemplate:
    """The decision to keep the pod template of the live Deployment.

    - `newer`: whether a new one would differ.
    - `replaced`: the value of ANNOTATION_REPLACED in the live pod template.
    """

    template: dict[str, Any]
    newer: bool
    replaced: str


@dataclass(frozen=True)
class Facts:
    """What is known of one TritonModel at one moment, and isn't in its spec.

    - `tools_image`: the operator's own image, for the init containers.
    - `delivery`: the value of spec.modelImage.delivery, with Auto resolved.
    - `replicas`: the desired number of servers, from the spec or from the live Deployment.
    - `entrypoint`: the model that clients call; "" if it isn't known yet.
    - `ensemble`: whether the entrypoint is an ensemble.
    - `decoupled`: models that may answer a request with several responses.
    - `thresholds`: the effective thresholds. The rules contain them as fallback values.
    - `prometheus`: URL of the Prometheus that has the load; "" if none is known.
    - `lists`: the lists of models that servers load, by their keys in the ConfigMap. Without that of the chosen pod
      template, its servers load spec.server.loadModels.
    - `initial_replicas`: the number of servers of a new Deployment that an autoscaler scales; None for the default.
    - `autoscaler_floor`: the least number of servers that the engine has decided; 0 without a decision.
    - `group`: the name of the group of servers to render; "" for the one that every TritonModel has.
    - `canary_weight`: the percentage of the requests that the routes send to the canary; None without a canary.
    - `enforced`: the limit above which the Gateway rejects requests; None without one.
    - `serves_all`: whether the Service has the servers of all groups; otherwise it has those without a name only.
    """

    tools_image: str
    delivery: Delivery = "Copy"
    replicas: int = 1
    entrypoint: str = ""
    ensemble: bool = False
    decoupled: tuple[str, ...] = ()
    thresholds: Mapping[ThresholdKey, float] = field(default_factory=dict)
    prometheus: str = ""
    lists: Mapping[str, Models] = field(default_factory=dict)
    initial_replicas: int | None = None
    autoscaler_floor: int = 0
    group: str = ""
    canary_weight: int | None = None
    enforced: Enforced | None = None
    serves_all: bool = True
    settings: RenderSettings = RenderSettings()
    cluster: Capabilities = Capabilities()
    template: NewTemplate | KeptTemplate = NewTemplate()
