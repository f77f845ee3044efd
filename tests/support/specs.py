"""Hypothesis strategies for TritonModels: specs that the CRD's schema accepts, and edge cases of each field."""

from __future__ import annotations

import copy
import re
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from support.controlplane import CRD, documents
from triton_operator.api import kinds, thresholds
from triton_operator.api.types import ALERTS_OWN_LABELS, is_reserved

Json = Any
_BIG = 2**63 - 1

CHARACTERS = st.characters(codec="utf-8")
"""All characters in UTF-8 JSON: NUL and other controls, right-to-left, combining and astral characters."""
WORDS = st.sampled_from(
    ["", " ", "a", "\x00", "\t", "\u00a0", "\x0b", "\u2028", "\u202eabc", "e\u0301", "🚦", "\U0010ffff",
     "\ufeff", "\ufffe",
     "{{ .Bad", "}}", "$1", "%s", "\\", '"', "'", "`", "a" * 63, "a" * 64, "a" * 253, "ü" * 300, "None", "null", "true",
     "~", "- a", "a: b", "#", "|", "0x1f", "1_000", "١٢", "８０"]
)  # fmt: skip
TEXT = st.one_of(st.text(CHARACTERS, max_size=12), WORDS)
NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([_BIG, -_BIG - 1, 2**31, 2**31 - 1, 10**6]), st.integers())
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS.filter(lambda n: abs(n) <= _BIG), TEXT, st.sampled_from([0.5, -1e300])),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=8,
)
"""Any JSON value."""

QUANTITIES = st.one_of(
    st.sampled_from(
        ["0", "1", "1.5Gi", "1e3", "1E3", "100m", "1E", "1Ei", "1.", ".5", "0.0000000001", "1n", "1u", "1e99",
         "1e-99", "9" * 32, "007", "1k", "1e+3", "9223372036854775807",
         "9223372036854775808", "8Ei"]
    ),
    st.integers(0, _BIG),
    st.from_regex(
        r"([0-9]{1,8}(\.[0-9]{0,4})?|\.[0-9]{1,4})([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?", fullmatch=True
    ),
)  # fmt: skip

VALUES = st.one_of(
    st.sampled_from(
        ["1e3", "1k", ".5", "5.", "inf", "+Inf", "nan", "-0", "0", "0.0", "00", "01", " 80 ", "80 ", "80\n", "８０",
         "٨٠", "8_0",
         "9" * 400, "1" + "0" * 9, "1000000000.000001", "999999999.999999", "0.000001", "0.0000001", "1,5", "0x10", "",
         "true", "false",
         "1", "1.0", "1.000000", "1000", "1000.000001", "1.000001", "-1", "+1", "1 ", "\u00a01", "1\x00", "𝟖𝟎"]
    ),
    st.from_regex(r"[0-9]{1,10}(\.[0-9]{1,7})?", fullmatch=True),
    TEXT,
)  # fmt: skip
"""Valid and invalid values of threshold annotations."""
_KINDS = st.sampled_from([*(kind.name for kind in thresholds.KINDS), "depth", "enforce"])
_VERSIONS = st.sampled_from(
    ["", ".1", ".v1", ".2", ".v2", ".0", ".v", ".1.2", ".999999999", ".9999999999", ".١", ".vv1"]
)
KEYS = st.one_of(
    st.builds(lambda k, v: f"tritonoperator.io/{k}{v}", _KINDS, _VERSIONS),
    st.builds(lambda v: f"max_qps{v}", _VERSIONS),
    st.sampled_from(["max-qps", "max_qps_per_replica", "max_tps", "note", "example.com/note"]),
)
ANNOTATIONS = st.dictionaries(KEYS, VALUES, max_size=4)


def schema(*path: str) -> dict[str, Any]:
    """Returns the CRD's schema of the field at this path."""
    (crd,) = documents(CRD)
    node: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for step in path:
        node = node["properties"][step]
    return node


def admitted(node: dict[str, Any], name: str = "") -> SearchStrategy[Json]:
    """Returns a strategy for values that this part of the schema accepts.

    Ignores CEL rules. For a pod's spec it also returns values that the API server rejects, which may come from an older
    CRD.
    """
    if node.get("nullable"):
        strategy = admitted({k: v for k, v in node.items() if k != "nullable"}, name)
        return st.one_of(strategy, strategy, strategy, strategy, st.none())
    if node.get("x-kubernetes-int-or-string"):
        return _int_or_string(node)
    if node.get("x-kubernetes-preserve-unknown-fields"):
        return st.one_of(QUANTITIES, st.floats(0, 100)).filter(lambda q: not isinstance(q, str) or _fits(node, q))
    if "enum" in node:
        return st.sampled_from(node["enum"])
    match node["type"]:
        case "object" if "properties" in node:
            required = {k: admitted(v, k) for k, v in node["properties"].items() if k in node.get("required", [])}
            optional = {k: v for k, v in node["properties"].items() if k not in required}
            if name == "spec" and "containers" in optional:
                return st.one_of(_some_of(optional, required), pod_spec())
            if len(optional) <= _FEW:
                some = st.fixed_dictionaries(required, optional={k: admitted(v, k) for k, v in optional.items()})
                most = node.get("maxProperties")
                return some if most is None else some.filter(lambda value: len(value) <= most)
            return _some_of(optional, required)
        case "object":
            values = admitted(node["additionalProperties"]) if "additionalProperties" in node else JSON
            return st.dictionaries(_keys(name), values, max_size=min(node.get("maxProperties", 4), 4))
        case "array":
            least, most = node.get("minItems", 0), min(node.get("maxItems", 3), 3)
            items, kind = admitted(node["items"]), node.get("x-kubernetes-list-type")
            if kind == "map":
                [key] = node["x-kubernetes-list-map-keys"]
                return st.lists(items, min_size=least, max_size=most, unique_by=lambda item: item[key])
            return st.lists(items, min_size=least, max_size=most, unique=kind == "set")
        case "string":
            return _string(node)
        case "integer":
            return st.one_of(
                st.sampled_from(sorted({node.get("minimum", -_BIG - 1), node.get("maximum", _BIG)})),
                st.integers(node.get("minimum", -_BIG - 1), node.get("maximum", _BIG)),
            )
        case "number":
            minimum, maximum = node.get("minimum"), node.get("maximum")
            exclusive = bool(node.get("exclusiveMinimum", False))
            return st.floats(minimum, maximum, exclude_min=exclusive, allow_nan=False, allow_infinity=False)
        case "boolean":
            return st.booleans()
    raise TypeError(f"no strategy for {node}")


def specs() -> SearchStrategy[Json]:
    """Returns a strategy for complete specs that pass the schema's rules for single fields."""
    return admitted(schema("spec")).map(_without_commas).map(_with_usable_keys)


def _without_commas(spec: Json) -> Json:
    """Returns the spec with models of loadModels that a rule in CEL allows."""
    server = spec.get("server", {})
    if "loadModels" not in server:
        return spec
    models = [name.replace(",", "") or "m" for name in server["loadModels"]]
    return {**spec, "server": {**server, "loadModels": models}}


_KEY = re.compile(r"([a-z0-9]{1,9}(\.[a-z0-9]{1,9}){0,3}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)


def _with_usable_keys(spec: Json) -> Json:
    """Returns the spec with labels and annotations in commonMetadata that rules in CEL allow."""
    if "commonMetadata" not in spec:
        return spec
    common = {
        field: {key: value for key, value in metadata.items() if _KEY.fullmatch(key) and not kinds.is_reserved(key)}
        for field, metadata in spec["commonMetadata"].items()
    }
    return {**spec, "commonMetadata": common}


_FEW = 12
"""An object with more optional fields than this, such as a pod, gets only some of them."""


def _some_of(optional: dict[str, Any], required: dict[str, SearchStrategy[Json]]) -> SearchStrategy[Json]:
    choice = st.lists(st.sampled_from(sorted(optional)), max_size=4, unique=True)
    return choice.flatmap(
        lambda keys: st.fixed_dictionaries({**required, **{k: admitted(optional[k], k) for k in keys}})
    )


def _fits(node: dict[str, Any], text: str) -> bool:
    return bool(go(node["pattern"]).search(text)) and len(text) <= node["maxLength"]


def _keys(name: str) -> SearchStrategy[str]:
    if name in ("limits", "requests"):
        return st.one_of(st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "ephemeral-storage"]), TEXT)
    if name in ("labels", "annotations", "alertLabels"):
        own = ["app.kubernetes.io/name", "tritonoperator.io/template-hash", "team", "__name__", "le", "severity"]
        return st.one_of(st.sampled_from(own), TEXT)
    return TEXT


def go(pattern: str) -> re.Pattern[str]:
    """Compiles a pattern with Go's semantics: `\\s` matches five ASCII characters, and `$` only the end of the text."""
    return re.compile(pattern.replace(r"\s", r"\t\n\f\r ").replace("$", r"\Z"))


def _string(node: dict[str, Any]) -> SearchStrategy[str]:
    minimum, maximum = node.get("minLength", 0), node.get("maxLength", 64)
    usual: SearchStrategy[str] = TEXT
    if "pattern" in node:
        pattern = go(node["pattern"])
        invalid = st.builds(
            lambda a, b, c: a + b + c, st.sampled_from(["a", "/a", "v1"]), TEXT, st.sampled_from(["", "b"])
        )
        usual = st.one_of(st.from_regex(pattern, alphabet=CHARACTERS), invalid, TEXT).filter(pattern.search)
    long = st.sampled_from([c * maximum for c in ("a", "9", "/")])
    long = long.filter(go(node["pattern"]).search) if "pattern" in node and node["pattern"] in _LONG else usual
    return st.one_of(usual, usual, usual, long).filter(lambda text: minimum <= len(text) <= maximum)


_LONG = (r"^[^/ \t-\r]+$", r"^[^ \t-\r]+$", r"^/[^ \t-\r]*$")


def _int_or_string(node: dict[str, Any]) -> SearchStrategy[Json]:
    if "pattern" not in node:
        return st.one_of(NUMBERS.filter(lambda n: abs(n) <= _BIG), TEXT)
    if node["pattern"] == r"^[0-9]+%$":
        shares = st.sampled_from(["0%", "1%", "25%", "100%", "101%", "9999999%", "00%"])
        return st.one_of(shares, st.integers(0, 3), st.sampled_from([2**31 - 1, 2**31, _BIG]))
    pattern = go(node["pattern"])
    return QUANTITIES.filter(lambda q: isinstance(q, int) or (bool(pattern.search(q)) and len(q) <= node["maxLength"]))


# Pods

_NAMES = st.sampled_from(
    ["triton", "tools", "fetch", "check", "models", "shm", "tmp", "side", "side", "", "A", "a" * 64]
)


def _or_wrong(strategy: SearchStrategy[Json]) -> SearchStrategy[Json]:
    """Returns a strategy for mostly the given values, and sometimes any JSON."""
    return st.one_of(strategy, strategy, strategy, strategy, JSON)


def _container() -> SearchStrategy[Json]:
    env = st.fixed_dictionaries({}, optional={"name": TEXT, "value": _or_wrong(TEXT), "valueFrom": JSON})
    port = st.fixed_dictionaries(
        {}, optional={"containerPort": NUMBERS, "name": TEXT, "protocol": st.sampled_from(["TCP", "UDP", "X"])}
    )
    mount = st.fixed_dictionaries(
        {}, optional={"name": _NAMES, "mountPath": st.sampled_from(["/models", "/x", "", "/tmp"])}
    )
    resources = st.fixed_dictionaries({}, optional={"limits": st.dictionaries(_keys("limits"), QUANTITIES, max_size=2)})
    return st.fixed_dictionaries(
        {},
        optional={
            "name": _or_wrong(_NAMES),
            "image": _or_wrong(st.sampled_from(["side:1", "", " "])),
            "command": _or_wrong(st.lists(TEXT, max_size=2)),
            "args": _or_wrong(st.lists(TEXT, max_size=2)),
            "env": _or_wrong(st.lists(env, max_size=3)),
            "ports": _or_wrong(st.lists(port, max_size=3)),
            "volumeMounts": _or_wrong(st.lists(mount, max_size=2)),
            "resources": _or_wrong(resources),
            "securityContext": _or_wrong(st.fixed_dictionaries({}, optional={"privileged": st.booleans()})),
            "readinessProbe": _or_wrong(st.fixed_dictionaries({}, optional={"periodSeconds": NUMBERS})),
        },
    )


def _volume() -> SearchStrategy[Json]:
    source = st.sampled_from([{"emptyDir": {}}, {"hostPath": {"path": "/"}}, {"secret": {"secretName": "s"}}, {}])
    return st.builds(lambda name, source: {"name": name, **source}, _NAMES, source)


def pod_spec() -> SearchStrategy[Json]:
    """Returns a strategy for valid and invalid partial PodSpecs, and for other JSON."""
    containers = _or_wrong(st.lists(_or_wrong(_container()), max_size=3))
    return st.one_of(
        st.fixed_dictionaries(
            {},
            optional={
                "containers": containers,
                "initContainers": containers,
                "volumes": _or_wrong(st.lists(_or_wrong(_volume()), max_size=3)),
                "nodeSelector": _or_wrong(st.dictionaries(TEXT, TEXT, max_size=2)),
                "tolerations": _or_wrong(st.lists(st.dictionaries(TEXT, TEXT, max_size=2), max_size=2)),
                "topologySpreadConstraints": _or_wrong(
                    st.lists(st.fixed_dictionaries({"topologyKey": TEXT, "maxSkew": NUMBERS}), max_size=3)
                ),
                "hostAliases": _or_wrong(st.lists(st.fixed_dictionaries({}, optional={"ip": TEXT}), max_size=2)),
                "imagePullSecrets": _or_wrong(st.lists(st.fixed_dictionaries({}, optional={"name": TEXT}), max_size=3)),
                "terminationGracePeriodSeconds": _or_wrong(NUMBERS),
                "securityContext": _or_wrong(st.fixed_dictionaries({}, optional={"runAsUser": NUMBERS})),
                "serviceAccountName": _or_wrong(TEXT),
                "restartPolicy": _or_wrong(st.sampled_from(["Always", "Never", "x"])),
                "affinity": JSON,
                "nosuchfield": JSON,
            },
        ),
        st.dictionaries(TEXT, JSON, max_size=3),
    )


# Whole resources

_ALERT_LABEL = go("^[a-zA-Z_][a-zA-Z0-9_]*$")


def lawful(spec: Json) -> Json:
    """Returns the spec, changed to satisfy the CRD's CEL rules, which generated values rarely do."""
    result = copy.deepcopy(spec)
    server = result.get("server", {})
    if "loadModels" in server or "modelControl" in server:
        server["modelControl"] = "explicit" if server.get("loadModels") else "none"
    if len(server.get("loadModels", [])) > 1:
        result.setdefault("entrypoint", "detection")
    if "args" in server:
        server["args"] = [a for a in server["args"] if not is_reserved(a) and "counter_latencies" not in a]
    resources = server.get("resources", {})
    if "requests" in resources:
        resources["requests"] = resources.get("limits", {})
    if "autoscaling" in result:
        result.pop("replicas", None)
        scaling = result["autoscaling"]
        scaling["min"] = min(scaling.get("min", 1), scaling["max"])
        if scaling.get("engine", "HPA") not in ("KEDA", "None"):
            scaling["min"] = max(scaling["min"], 1)
    labels = result.get("monitoring", {}).get("alertLabels", {})
    for key in [k for k in labels if not _ALERT_LABEL.search(k) or k in ALERTS_OWN_LABELS]:
        del labels[key]
    monitoring = result.get("monitoring", {})
    if monitoring.get("latency") is not None and "args" in server:
        server["args"] = [a for a in server["args"] if not a.startswith("--trace") and "trace" not in a]
    for field in set(monitoring.get("latency") or {}) & {"p50", "p90", "p95", "p99"}:
        monitoring["latency"][field] = "200ms"
    route, canary = result.get("route") or {}, result.get("canary") or {}
    if not canary.keys() & {"modelImage", "server", "models"} or "hashHeader" in route:
        result.pop("canary", None)
    elif not route:
        canary["weight"] = min(canary.get("weight", 0), 50)
        canary.pop("mirror", None)
    if not canary.get("mirror"):
        canary.pop("comparePercent", None)
    if "steps" in canary:
        canary["steps"] = [step for step in canary["steps"] if step < canary.get("weight", 10)]
    rollout = result.get("rollout", {})
    if {str(rollout.get(k)) for k in ("maxSurge", "maxUnavailable")} <= {"0", "0%"}:
        rollout.pop("maxSurge", None)
    return result


MODEL_NAMES = st.one_of(
    st.from_regex(r"[a-z]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True),
    st.sampled_from(["a" * 53, "a" * 54, "a" * 55, "a" * 63, "a" * 253, "a" * 254, "a.b", "1a", "a-", "-a", "A", "ü",
                     "a_b", "a b", "default", "kubernetes", "a" * 52 + "-9"]),
)  # fmt: skip


def resources() -> SearchStrategy[Json]:
    """Returns a strategy for mostly valid TritonModels, without namespace and kind."""
    spec = st.one_of(*[specs().map(lawful)] * 6, specs(), JSON)
    metadata = st.fixed_dictionaries(
        {"name": MODEL_NAMES},
        optional={"annotations": ANNOTATIONS, "labels": st.dictionaries(TEXT, TEXT, max_size=1)},
    )
    return st.fixed_dictionaries({"metadata": metadata, "spec": spec})
