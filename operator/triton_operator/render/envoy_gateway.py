"""Envoy Gateway's policy for the routes: what the Gateway API has no field for."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.kinds import NewerField
from triton_operator.api.route import Enforcement
from triton_operator.api.status import ROUTED
from triton_operator.api.types import TritonModel

from .child_type import Child, Object
from .common import is_newest, obj, only
from .facts import Enforced, Facts
from .routes import CHILDREN as ROUTES
from .routes import NOT_INFERENCE

CONTROLLER = "gateway.envoyproxy.io/gatewayclass-controller"
"""The name of Envoy Gateway in the status of a route."""
ANCESTORS = "ancestors"
"""The field of the policy's status with Envoy Gateway's answers."""
INVALID = "Invalid"
"""The reason with which it refuses what it can't translate, and answers every request with an error."""
COUNTED_BY = f"{names.GROUP}/counted-by"
"""The policy's annotation with who counts requests instead, because Envoy Gateway has refused what is wanted."""
_TIMEOUT = {"http": {"requestTimeout": "0s"}}
"""By default Envoy ends a request after 15 s, and a stream too. Triton has limits of its own."""
_ROUNDING = 0.025
"""How far a whole number of requests may be from the limit."""
_MAX_REQUESTS = 2**32 - 1
_RETRY_SECONDS = 1


def policies(model: TritonModel, facts: Facts) -> list[Object]:
    """Returns the policy for the routes that the TritonModel has, if the cluster knows the kind.

    Without the merge, it would end what an administrator's policy of the whole Gateway sets.
    """
    if kinds.BACKEND_TRAFFIC_POLICY in facts.cluster.missing:
        return []
    targets = [child.kind for child in ROUTES if child.render(model, facts)]
    if model.spec.route is None or not targets:
        return []
    header, enforced = model.spec.route.hash_header, facts.enforced
    spec = {
        "targetRefs": [{"group": kind.group, "kind": kind.kind, "name": model.name} for kind in targets],
        "mergeType": "StrategicMerge",
        "loadBalancer": {"type": "LeastRequest"} if header is None else _by_hash(header),
        "timeout": _TIMEOUT,
        **(_limit(model, model.spec.route.enforcement, enforced) if enforced else {}),
    }
    instead = enforced.counted_by if enforced and enforced.counted_by != enforced.wanted else ""
    annotations = {COUNTED_BY: instead} if instead else {}
    return [obj(model, kinds.BACKEND_TRAFFIC_POLICY, annotations=annotations, spec=spec)]


def limits(policy: Mapping[str, Any]) -> bool:
    """Returns whether the policy has a limit."""
    return "rateLimit" in policy.get("spec", {})


def refusal(policy: Mapping[str, Any], model: TritonModel) -> Mapping[str, Any] | None:
    """Returns the condition with which the TritonModel's Gateway refuses the newest spec; None if it doesn't."""
    newest = (said for said in _accepted(policy, model) if is_newest(policy, said))
    return next((said for said in newest if said.get("status") == "False"), None)


def accepted(policy: Mapping[str, Any], model: TritonModel) -> bool:
    """Returns whether all its listeners have accepted the newest spec of the policy."""
    answers = list(_accepted(policy, model))
    return bool(answers) and all(said.get("status") == "True" and is_newest(policy, said) for said in answers)


def was_accepted(policy: Mapping[str, Any], model: TritonModel) -> bool:
    """Returns whether they have accepted the last spec of the policy that they have seen."""
    answers = list(_accepted(policy, model))
    return bool(answers) and all(said.get("status") == "True" for said in answers)


def _accepted(policy: Mapping[str, Any], model: TritonModel) -> Iterator[Mapping[str, Any]]:
    """Yields the conditions Accepted of the listeners. Answers of a Gateway that the spec named before may remain."""
    gateway = model.spec.route and model.spec.route.gateway
    for answer in policy.get("status", {}).get(ANCESTORS, []):
        ref = answer.get("ancestorRef", {})
        of = (ref.get("namespace") or model.namespace, ref.get("name"))
        if gateway and of == (gateway.namespace or model.namespace, gateway.name):
            yield from (said for said in answer.get("conditions", []) if said.get("type") == "Accepted")


def _by_hash(header: str) -> Object:
    # Envoy Gateway 1.6 and later also have the type Headers. The size is the default, which the API server would add.
    return {
        "type": "ConsistentHash",
        "consistentHash": {"type": "Header", "header": {"name": header}, "tableSize": 65537},
    }


def _limit(model: TritonModel, enforcement: Enforcement, enforced: Enforced) -> Object:
    """Returns the fields that limit the rate of inference requests.

    Each proxy has a limit by itself, also if all count together: the service counts by the second, and would let all
    requests of a second pass in its first moments.
    """
    if enforced.counted_by not in ("Gateway", "Proxy"):
        return {}
    rules = list(_rules(enforcement, enforced.per_second))
    together = {"global": {"rules": [{**rule, "shared": True} for rule in rules]}}
    return {
        "rateLimit": {"local": {"rules": rules}, **(together if enforced.counted_by == "Gateway" else {})},
        "responseOverride": _answers(model, rounded(enforced.per_second)),
    }


def _rules(enforcement: Enforcement, per_second: float) -> Iterator[Object]:
    # Not those of inference, because a query may have bytes that no regular expression matches.
    path = {"type": "RegularExpression", "value": rf"({NOT_INFERENCE})(\?.*)?", "invert": True}
    selectors: list[tuple[Object, float]] = [({"path": path}, per_second)]
    if header := enforcement.client_header:
        share = per_second * enforcement.client_percent / 100
        each = {"name": header, "type": "Distinct", "invert": False}
        without = {"name": header, "type": "RegularExpression", "value": ".*", "invert": True}
        selectors += [({"path": path, "headers": [matched]}, share) for matched in (each, without)]
    for selector, rate in selectors:
        for requests, unit in quotas(rate):
            yield {"clientSelectors": [selector], "limit": {"requests": requests, "unit": unit}}


def quotas(per_second: float) -> list[tuple[int, str]]:
    """Returns whole numbers of requests in units of time that together are a rate: by the second if that is near.

    Otherwise by the minute, and besides by the second, so that not all requests of a minute come at once.
    """
    if (second := _near(per_second)) is not None:
        return [(min(second, _MAX_REQUESTS), "Second")]
    minute = _near(60 * per_second) or math.ceil(60 * per_second)
    return [(minute, "Minute"), (math.ceil(per_second), "Second")]


def _near(rate: float) -> int | None:
    """Returns a whole number near a rate, if there is one."""
    whole = round(rate)
    return whole if abs(whole - rate) <= _ROUNDING * rate else None


def rounded(per_second: float) -> float:
    """Returns the rate that `quotas` make of this one."""
    requests, unit = quotas(per_second)[0]
    return requests / (60 if unit == "Minute" else 1)


def most(per_second: float) -> float:
    """Returns how many times as much a proxy lets pass in a minute, at most, as a multiple of the rate.

    What it lets pass in a minute may come at its end, and that of the next one at its beginning.
    """
    (requests, unit), *others = quotas(per_second)
    if unit == "Second":
        return 1.0
    return min(2 * requests, 60 * others[0][0]) / (60 * per_second)


def _answers(model: TritonModel, per_second: float) -> list[Object]:
    """Returns the answers to rejected requests: Triton's form of an error, and when to try again.

    Envoy itself answers gRPC with UNAVAILABLE, which clients try again at once.
    """
    error = f"too many requests for {model.key}: it gets at most {per_second:.6g} a second; try again later"
    exhausted = {
        "grpc-status": "8",
        "grpc-message": error,
        "grpc-retry-pushback-ms": str(_RETRY_SECONDS * 1000),
    }
    by_proxy = [_matched("grpc-message", "local_rate_limited")]
    # Each limit adds what remains of it.
    by_service = [
        _matched("grpc-status", "14"),
        _matched("x-ratelimit-remaining", "(.*,)?0(,.*)?", "RegularExpression"),
    ]
    return [
        {
            "match": {"statusCodes": [{"type": "Value", "value": 429}]},
            "source": "Local",
            "response": {
                "contentType": "application/json",
                "body": {"type": "Inline", "inline": json.dumps({"error": error})},
                "header": {"set": _headers({"retry-after": str(_RETRY_SECONDS)})},
            },
        },
        *(
            {
                "match": {"responseHeaders": matched},
                "source": "Local",
                "response": {"header": {"set": _headers(exhausted)}},
            }
            for matched in (by_proxy, by_service)
        ),
    ]


def _matched(name: str, value: str, how: str = "Exact") -> Object:
    return {"name": name, "value": {"type": how, "value": value}}


def _headers(values: Mapping[str, str]) -> list[Object]:
    return [{"name": name, "value": value} for name, value in values.items()]


_OVERRIDE = "spec.responseOverride"
CHILD = Child(
    kinds.BACKEND_TRAFFIC_POLICY,
    policies,
    needed=lambda model: model.spec.route is not None,
    condition=ROUTED,
    newer=(
        NewerField("spec.mergeType", "Envoy Gateway 1.4", left_out="spec.mergeType"),
        *(
            NewerField(f"spec.rateLimit.{path}", "Envoy Gateway 1.6", left_out="spec.rateLimit")
            for path in (
                "local.rules.clientSelectors.path",
                "global.rules.clientSelectors.path",
                "global.rules.shared",
            )
        ),
        *(
            NewerField(f"{_OVERRIDE}.{path}", f"Envoy Gateway {since}", left_out=_OVERRIDE)
            for path, since in (("match.responseHeaders", "1.9"), ("source", "1.9"), ("response.header", "1.6"))
        ),
    ),
    status=only(ANCESTORS),
)
