"""Envoy Gateway's policy for the routes: what the Gateway API has no field for."""

from __future__ import annotations

from triton_operator.api import kinds
from triton_operator.api.kinds import NewerField
from triton_operator.api.status import ROUTED
from triton_operator.api.types import TritonModel

from .child_type import Child, Object
from .common import obj, only
from .facts import Facts
from .routes import CHILDREN as ROUTES

CONTROLLER = "gateway.envoyproxy.io/gatewayclass-controller"
"""The name of Envoy Gateway in the status of a route."""
ANCESTORS = "ancestors"
"""The field of the policy's status with Envoy Gateway's answers."""
_TIMEOUT = {"http": {"requestTimeout": "0s"}}
"""By default Envoy ends a request after 15 s, and a stream too. Triton has limits of its own."""


def policies(model: TritonModel, facts: Facts) -> list[Object]:
    """Returns the policy for the routes that the TritonModel has, if the cluster knows the kind.

    Without the merge, it would end what an administrator's policy of the whole Gateway sets.
    """
    if kinds.BACKEND_TRAFFIC_POLICY in facts.cluster.missing:
        return []
    targets = [child.kind for child in ROUTES if child.render(model, facts)]
    if model.spec.route is None or not targets:
        return []
    header = model.spec.route.hash_header
    spec = {
        "targetRefs": [{"group": kind.group, "kind": kind.kind, "name": model.name} for kind in targets],
        "mergeType": "StrategicMerge",
        "loadBalancer": {"type": "LeastRequest"} if header is None else _by_hash(header),
        "timeout": _TIMEOUT,
    }
    return [obj(model, kinds.BACKEND_TRAFFIC_POLICY, spec=spec)]


def _by_hash(header: str) -> Object:
    # Envoy Gateway 1.6 and later also have the type Headers. The size is the default, which the API server would add.
    return {
        "type": "ConsistentHash",
        "consistentHash": {"type": "Header", "header": {"name": header}, "tableSize": 65537},
    }


CHILD = Child(
    kinds.BACKEND_TRAFFIC_POLICY,
    policies,
    needed=lambda model: model.spec.route is not None,
    condition=ROUTED,
    newer=(NewerField("spec.mergeType", "Envoy Gateway 1.4", left_out="spec.mergeType"),),
    status=only(ANCESTORS),
)
