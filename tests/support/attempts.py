"""Generates the actions of a tenant: requests with unusual specs, labels and names, and answers of its servers.

The strategies generate data; `Tenant` executes it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from triton_operator.api import names

from . import bad_servers, specs
from .api import Api, RefusedError
from .bad_servers import Behaviour
from .strange import Strange

Json = Any

VICTIM = "canary"
"""A TritonModel of others."""
OWN = ("m-1", "m-2", "m-3")
NAMES = st.one_of(
    st.sampled_from(OWN),
    st.sampled_from(OWN),
    st.sampled_from([VICTIM, "shop", "default", "triton-operator", "m-1-headless", "a" * 54, "a" * 55, "M", "m.1", ""]),
)
HOSTILE = st.sampled_from(
    [
        "\x1b[2J\x1b]0;x\x07",
        "\u202egnp",
        '"} or up{x="',
        "{{ query `up` }}",
        "$(id)",
        "a\nb: c",
        "../../etc",
        "x" * 5000,
    ]
)
_KEYS = st.sampled_from(
    ["app.kubernetes.io/instance", names.LABEL_NAME, names.LABEL_MANAGED_BY, f"{names.GROUP}/model", "app",
     "example.com/a", "pod-security.kubernetes.io/enforce", names.LABEL_NAMESPACE]
)  # fmt: skip
_VALUES = st.sampled_from(["triton", "triton-operator", VICTIM, "shop", "privileged", "others", *OWN])
LABELS = st.dictionaries(_KEYS, _VALUES, max_size=4)
_OPERATORS_OWN = st.sampled_from(
    [names.ANNOTATION_TEMPLATE, f"{names.GROUP}/tools-image", names.ANNOTATION_DELIVERY, names.ANNOTATION_POD_TEMPLATE,
     names.ANNOTATION_SPEC, names.ANNOTATION_RESTARTED, "example.com/a"]
)  # fmt: skip
ANNOTATIONS = st.one_of(specs.ANNOTATIONS, st.dictionaries(_OPERATORS_OWN, st.one_of(HOSTILE, specs.TEXT), max_size=3))
OWNERS = st.lists(
    st.fixed_dictionaries(
        {
            "apiVersion": st.sampled_from([names.API_VERSION, "v1", "apps/v1"]),
            "kind": st.sampled_from([names.KIND, "ConfigMap", "Deployment"]),
            "name": st.sampled_from([VICTIM, *OWN]),
            "uid": st.sampled_from(["uid-of-the-victim", "u"]),
        },
        optional={"controller": st.booleans(), "blockOwnerDeletion": st.booleans()},
    ),
    max_size=1,
)
METADATA = st.fixed_dictionaries(
    {"name": NAMES},
    optional={
        "labels": LABELS,
        "annotations": ANNOTATIONS,
        "ownerReferences": OWNERS,
        "finalizers": st.just(["example.com/held"]),
    },
)
_POD = st.fixed_dictionaries(
    {},
    optional={
        "hostNetwork": st.just(True),
        "hostPID": st.just(True),
        "serviceAccountName": st.sampled_from(["triton-operator", VICTIM, "default"]),
        "automountServiceAccountToken": st.just(True),
        "nodeName": st.just("control-plane"),
        "priorityClassName": st.just("system-node-critical"),
        "securityContext": st.sampled_from([{}, None, {"runAsUser": 0}, {"runAsNonRoot": False}]),
        "tolerations": st.lists(
            st.fixed_dictionaries({"key": st.sampled_from(["", "example.com/gpu", "nvidia.com/gpu"]),
                                   "operator": st.just("Exists")}), max_size=2),
        "volumes": st.lists(
            st.sampled_from([{"name": "a", "hostPath": {"path": "/"}}, {"name": "a", "secret": {"secretName": "s"}},
                             {"name": "tmp", "hostPath": {"path": "/"}}, {"name": "a", "emptyDir": {}}]), max_size=2),
        "containers": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from([names.CONTAINER_SERVER, "side", names.CONTAINER_CHECK])},
                optional={
                    "image": st.just("evil:1"),
                    "securityContext": st.sampled_from([{"privileged": True}, None, {"capabilities": None}]),
                    "volumeMounts": st.just([{"name": "a", "mountPath": "/a"}]),
                    "env": st.just([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
                },
            ),
            max_size=2,
        ),
    },
)  # fmt: skip
_TEMPLATE = st.fixed_dictionaries(
    {}, optional={"metadata": st.fixed_dictionaries({}, optional={"labels": LABELS, "annotations": ANNOTATIONS}),
                  "spec": st.one_of(_POD, _POD, specs.pod_spec())}
)  # fmt: skip
_PARTS: dict[str, SearchStrategy[Json]] = {
    "modelImage": st.fixed_dictionaries({"reference": HOSTILE}),
    "entrypoint": st.one_of(HOSTILE, specs.TEXT),
    "podTemplate": _TEMPLATE,
    "commonMetadata": st.fixed_dictionaries({}, optional={"labels": LABELS, "annotations": ANNOTATIONS}),
    "replicas": st.sampled_from([0, 1, 3, 1000]),
    "networkPolicy": st.just({}),
    "disruption": st.sampled_from([{"maxUnavailable": 0}, {"maxUnavailable": "100%"}]),
    "monitoring": st.fixed_dictionaries({}, optional={"labels": LABELS, "alertLabels": LABELS}),
    "server": st.fixed_dictionaries(
        {},
        optional={
            "args": st.lists(HOSTILE, max_size=2),
            "env": st.just([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
            "resources": st.sampled_from([{"limits": {"example.com/gpu": "1"}}, {"limits": {"memory": "1e30"}}]),
        },
    ),
}
_PART = st.sampled_from(sorted(_PARTS)).flatmap(lambda field: _PARTS[field].map(lambda value: {field: value}))
"""Single fields that an attacker would try. The API server usually refuses a spec with several of them."""
_HOSTILE_SPEC = st.lists(_PART, max_size=2).map(
    lambda parts: {
        "modelImage": {"reference": "registry.example.com/net:1"},
        **{k: v for p in parts for k, v in p.items()},
    }
)
SPECS = st.one_of(_HOSTILE_SPEC, _HOSTILE_SPEC, specs.specs().map(specs.lawful))


@dataclass(frozen=True)
class Attempt:
    """A request. `verb`: put, apply (with the operator's field manager), patch, delete, scale, status, or child: an
    object like those of the operator, from the seed `number`."""

    verb: str
    metadata: Json = field(default_factory=dict)
    spec: Json = field(default_factory=dict)
    number: int = 0


WRITES = ("put", "put", "apply", "patch")
"""The verbs of attempts with a spec."""
ATTEMPTS: SearchStrategy[Attempt] = st.one_of(
    st.builds(Attempt, st.sampled_from(WRITES), METADATA, SPECS),
    st.builds(Attempt, st.sampled_from(["delete", "scale", "status"]), METADATA, number=st.integers(-1, 3)),
    st.builds(Attempt, st.just("child"), number=st.integers(0, 2**32)),
)

_ENTRY = st.fixed_dictionaries(
    {"name": st.one_of(st.just("net"), HOSTILE, specs.TEXT)},
    optional={
        "version": st.one_of(st.just("1"), HOSTILE),
        "state": st.sampled_from(["READY", "UNAVAILABLE", "LOADING", "GONE", ""]),
        "reason": st.one_of(st.just("unloaded"), HOSTILE, specs.TEXT),
    },
)
ANSWERS: SearchStrategy[Behaviour] = st.one_of(
    st.lists(_ENTRY, max_size=6).map(lambda index: bad_servers.answers(json.dumps(index).encode())),
    specs.JSON.map(lambda value: bad_servers.answers(json.dumps(value).encode())),
    st.binary(max_size=500).map(bad_servers.answers),
    st.sampled_from(
        [bad_servers.hangs, bad_servers.trickles, bad_servers.floods, bad_servers.floods_a_head, bad_servers.closes,
         bad_servers.always_continues, bad_servers.compresses, bad_servers.redirects("/"), bad_servers.speaks_no_http]
    ),
)  # fmt: skip
"""Answers to the operator's requests for the repository index."""

_SERIES = st.sampled_from(
    ["nv_inference_request_success", "nv_inference_pending_request_count", "up", "ALERTS", "scrape_samples_scraped",
     "tritonmodel:threshold:effective", "tritonmodel:servers:ready", "triton_operator_threshold",
     "triton_operator_resource_version"]
)  # fmt: skip
_LABEL_NAMES = st.sampled_from(
    ["namespace", "tritonmodel", "model", "version", "job", "pod", "instance", "kind", "le", "__name__", "severity",
     "exported_namespace", "tenant"]
)  # fmt: skip
_LABEL_VALUES = st.one_of(
    st.sampled_from(["others", VICTIM, "max-qps", "1", names.METRICS_JOB, "net", "+Inf"]), HOSTILE, specs.TEXT
)
_LINES = st.builds(
    lambda name, labels, value: f"{name}{{{_label_text(labels)}}} {value}\n",
    _SERIES,
    st.dictionaries(_LABEL_NAMES, _LABEL_VALUES, max_size=5),
    st.sampled_from(["0", "1", "1e9", "NaN", "-Inf", "1e308", "1 99999999999999"]),
)
PAGES: SearchStrategy[Behaviour] = st.one_of(
    st.lists(_LINES, max_size=30).map(lambda lines: bad_servers.answers("".join(lines).encode())),
    st.integers(1, 200_000).map(lambda n: bad_servers.answers(b"".join(b'nv_a{n="%d"} 1\n' % i for i in range(n)))),
    st.sampled_from([bad_servers.floods, bad_servers.trickles, bad_servers.closes, bad_servers.compresses]),
)
"""Answers to Prometheus."""


def _label_text(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels.items())


class Tenant:
    """A user with permissions in one namespace. `victim`: uid of a TritonModel of others."""

    def __init__(self, api: Api, victim: str) -> None:
        self._api, self._victim = api, victim

    def attempt(self, attempt: Attempt) -> int:
        """Sends the request; returns 200, or the status code of the refusal."""
        try:
            self._do(attempt)
        except RefusedError as refusal:
            return refusal.code
        return 200

    def _do(self, attempt: Attempt) -> None:
        api, name = self._api, attempt.metadata.get("name") or "m-1"
        path = api.path(names.KIND, name)
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": self._metadata(attempt),
            "spec": attempt.spec,
        }
        if attempt.verb == "put":
            model = api.find(names.KIND, name)
            if model is None:
                api.create(body)
            else:
                body["metadata"]["resourceVersion"] = model["metadata"]["resourceVersion"]
                api.request("PUT", path, body)
        elif attempt.verb == "apply":
            api.apply(body, names.FIELD_MANAGER)
        elif attempt.verb == "patch":
            api.patch(names.KIND, name, {"metadata": self._metadata(attempt), "spec": attempt.spec})
        elif attempt.verb == "delete":
            api.delete(names.KIND, name, propagationPolicy=("Orphan", "Foreground")[attempt.number % 2])
        elif attempt.verb == "scale":
            patch = {"spec": {"replicas": attempt.number}}
            api.request("PATCH", f"{path}/scale", patch, "application/merge-patch+json")
        elif attempt.verb == "status":
            api.patch(names.KIND, name, {"status": {"entrypoint": "net", "maxQps": "1e9"}}, "status")
        else:
            child, patch, status = Strange(attempt.number, {VICTIM: self._victim}).child()
            metadata, used_names = child["metadata"], (*OWN, f"{OWN[0]}-headless")
            metadata |= {"namespace": api.namespace, "name": (f"c-{attempt.number}", *used_names)[attempt.number % 5]}
            if attempt.number % 2 and isinstance(metadata.get("labels"), dict):
                # The API server refuses most kinds with the label. Without it, the object may take a name.
                metadata["labels"].pop(names.LABEL_MANAGED_BY, None)
            child_name = api.create(child)["metadata"]["name"]
            with contextlib.suppress(RefusedError):
                if patch is not None:
                    query = urlencode({"fieldManager": names.FIELD_MANAGER})
                    path = f"{api.path(child['kind'], child_name)}?{query}"
                    api.request("PATCH", path, patch, "application/merge-patch+json")
                api.patch(child["kind"], child_name, {"status": status}, "status")

    def _metadata(self, attempt: Attempt) -> Json:
        metadata = {"namespace": self._api.namespace, **attempt.metadata}
        if "ownerReferences" in metadata:
            owners = [{**owner, "uid": owner["uid"].replace("uid-of-the-victim", self._victim)}
                      for owner in metadata["ownerReferences"]]  # fmt: skip
            metadata["ownerReferences"] = owners
        return metadata
