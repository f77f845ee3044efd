"""The CRD's schema and CEL rules reject invalid specs, with a message that explains the fix."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack import kubernetes_types
from support import controlplane, gen
from support.api import Api, RefusedError
from support.controlplane import ControlPlane
from support.people import make
from triton_operator.api.types import ALERTS_OWN_LABELS, RESERVED_FLAGS
from triton_operator.render import Facts, render

pytestmark = pytest.mark.integration

LONG = "x" * 2000
PODS: dict[str, dict[str, Any]] = {
    file.stem: {"podTemplate": yaml.safe_load(file.read_text())}
    for file in sorted((Path(__file__).parent / "pods").glob("*.yaml"))
}
"""Pod templates as they are used with model servers."""


def server(**fields: Any) -> dict[str, Any]:
    return {"server": fields}


def explicit(*names: str) -> dict[str, Any]:
    return {**server(modelControl="explicit", loadModels=list(names)), "entrypoint": "a"}


def health(file: str) -> dict[str, Any]:
    return {"healthRequest": {"file": file}}


def config(*names: str, **fields: Any) -> dict[str, Any]:
    return {"models": [{"name": name, "config": fields} for name in names or ("net",)]}


def image(**fields: Any) -> dict[str, Any]:
    return {"modelImage": {"reference": "r:1", **fields}}


def resources(**fields: Any) -> dict[str, Any]:
    return server(resources=fields)


def clients(**peer: Any) -> dict[str, Any]:
    return {"networkPolicy": {"clients": [peer]}}


def egress(**port: Any) -> dict[str, Any]:
    return {"networkPolicy": {"egress": [{"ports": [port]}]}}


def expression(**requirement: Any) -> dict[str, Any]:
    return clients(podSelector={"matchExpressions": [requirement]})


def alert_label(name: str) -> dict[str, Any]:
    return {"monitoring": {"alertLabels": {"team": "vision", name: "x"}}}


def common(**metadata: Any) -> dict[str, Any]:
    return {"commonMetadata": metadata}


def template(**metadata: Any) -> dict[str, Any]:
    return {"podTemplate": {"metadata": metadata}}


def pod(**spec: Any) -> dict[str, Any]:
    return {"podTemplate": {"spec": spec}}


def container(**fields: Any) -> dict[str, Any]:
    return pod(containers=[{"name": "triton", **fields}])


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def behavior(**rules: Any) -> dict[str, Any]:
    return {"autoscaling": {"max": 2, "behavior": rules}}


def nested(levels: int) -> dict[str, Any]:
    return functools.reduce(lambda inner, _: {"a": inner}, range(levels), {})


def route(**fields: Any) -> dict[str, Any]:
    return {"route": {"gateway": {"name": "a"}, "hostnames": ["a.example.com"], **fields}}


REFUSED: list[tuple[dict[str, Any], str]] = [
    # CEL
    (server(modelControl="explicit"), "modelControl: explicit needs at least one model in loadModels"),
    (server(modelControl="explicit", loadModels=[]), "modelControl: explicit needs at least one model in loadModels"),
    (server(loadModels=["a"]), "modelControl: none loads every model, so remove loadModels"),
    (server(modelControl="explicit", loadModels=["a", "b"]), "has several models, so entrypoint is required"),
    ({**explicit("b", "c"), **health("d/x.json")}, "healthRequest.file is of a model that may not be loaded"),
    ({**server(args=["--http-restricted-api=trace,inference:key=$(KEY)"]), **health("a/x.json")},
     "healthRequest needs inference without a key"),
    ({**server(args=["--cache-config=local,size=1000000"]), **health("a/x.json"),
      **config("a", response_cache={"enable": True})}, "a cache would answer healthRequest"),
    *((health(file), "spec.healthRequest.file in body should match") for file in
      ("x.json", "/a/x.json", "a/../x.json", "../x.json", "a/b/x.json", "a/$(id)", "a/x y", "a/.x", "a b/x", "a/x\n")),
    (explicit("a,b"), "loadModels needs one model per item, without commas: write [a, b] instead of ['a,b']"),
    (explicit("a", "b,"), "loadModels needs one model per item"),
    (server(args=["--model-repository=/x"]), "--model-repository: args has a flag, or the abbreviation of a flag"),
    (server(args=["--ok", "--http-port"]), "args has a flag, or the abbreviation of a flag"),
    (server(args=["--http-por=9000"]), "args has a flag, or the abbreviation of a flag"),
    (server(args=["--http-por", "9000"]), "args has a flag, or the abbreviation of a flag"),
    (server(args=["--http-address=ipv6:[::1]"]), "args has a flag, or the abbreviation of a flag"),
    (server(args=["--http-addr=ipv6:[::]"]), "args has a flag, or the abbreviation of a flag"),
    (server(args=["--metrics-config=counter_latencies=false"]), "stops all counters of Triton's metrics"),
    (server(args=["--ok=1", "--trace-config mode=opentelemetry"]),
     "--trace-config: a flag and its value are one item: write --flag=value, or two items"),
    (server(args=["--metrics-config=summary_latency=true"]),
     "--metrics-config: tritonserver has no such key of its metrics: use counter_latencies, histogram_latencies, sum"),
    (server(args=["--metrics-config", "counters_latencies=true"]), "counters_latencies: tritonserver has no such key"),
    (server(args=["--metrics-config=custom_metrics=true"]), "--metrics-config: tritonserver has no such key"),
    (server(args=["--metrics-config", "custom_metrics=/opt/m.so"]), "custom_metrics: tritonserver has no such"),
    (server(args=["--metrics-conf=all"]), "--metrics-conf: tritonserver has no such key"),
    (server(args=["tritonserver"]), "tritonserver: args contains flags only"),
    (server(args=["/opt/tritonserver/bin/tritonserver", "--ok=1"]), "args contains flags only"),
    (server(args=["--http-restricted-api=health:key=abc"]), "--http-restricted-api: the probes of the pod need"),
    (server(args=["--http-rest=metadata,health:key=abc"]), "the probes of the pod need the health endpoints"),
    (server(args=["--http-restricted-api", "health,metadata:key=abc"]), "--http-restricted-api: the probes of the pod"),
    (server(args=["tritonserver --ok=1"]), "tritonserver: args contains flags only"),
    (resources(limits={"cpu": 1}, requests={"cpu": "1500m"}), "a request is above its limit"),
    (resources(limits={"memory": "1Gi"}, requests={"memory": "1025Mi"}), "a request is above its limit"),
    ({**config(), **server(args=["--model-config-name=fast"])}, "doesn't read with the flag --model-config-name"),
    (resources(requests={"nvidia.com/gpu": 1}), "must be set in limits"),
    (resources(limits={"cpu": 1}, requests={"nvidia.com/gpu": 1}), "must be set in limits"),
    ({"rollout": {"maxSurge": 0, "maxUnavailable": "0%"}}, "can't both be 0"),
    ({"rollout": {"maxSurge": "0%", "maxUnavailable": 0}}, "can't both be 0"),
    ({"autoscaling": {"min": 3, "max": 2}}, "min is above max: lower min or raise max"),
    ({"autoscaling": {"min": 0, "max": 2, "engine": "Direct"}}, "min: 0 doesn't work with engine: Direct"),
    (clients(), "a peer must have either ipBlock, or podSelector, namespaceSelector or both"),
    (clients(ipBlock={"cidr": "10.0.0.0/8"}, podSelector={}), "a peer must have either ipBlock, or podSelector"),
    (expression(key="a", operator="In"), "In and NotIn need values; remove values from Exists and DoesNotExist"),
    (expression(key="a", operator="Exists", values=["b"]), "In and NotIn need values"),
    (egress(endPort=80), "endPort needs port to be a number that is at most endPort"),
    (egress(port="http", endPort=80), "endPort needs port to be a number that is at most endPort"),
    (egress(port=81, endPort=80), "endPort needs port to be a number that is at most endPort"),
    # Enums
    (expression(key="a", operator="Like"), 'supported values: "In", "NotIn", "Exists", "DoesNotExist"'),
    (egress(port=80, protocol="ICMP"), 'supported values: "TCP", "UDP", "SCTP"'),
    (image(delivery="Pigeon"), 'supported values: "Auto", "Copy", "ImageVolume"'),
    (image(pullPolicy="Sometimes"), 'supported values: "Always", "IfNotPresent", "Never"'),
    (server(modelControl="poll"), 'supported values: "none", "explicit"'),
    (config(instance_group=[{"kind": "GPU"}]), 'models[0].config.instance_group[0].kind: Unsupported value: "GPU"'),
    # Patterns and lengths
    ({"modelImage": None}, "spec.modelImage: Required value"),
    ({"modelImage": {}}, "spec.modelImage.reference: Required value"),
    (image(reference=""), "at least 1 chars long"),
    (image(reference="a b"), "spec.modelImage.reference in body should match"),
    (image(reference=LONG), "Too long"),
    (image(path="models"), "spec.modelImage.path in body should match"),
    (image(path="/a b"), "spec.modelImage.path in body should match"),
    (image(pullSecrets=[{}]), "spec.modelImage.pullSecrets[0].name: Required value"),
    (image(pullSecrets=[{"name": ""}]), "at least 1 chars long"),
    (image(pullSecrets=[{"name": "a"}] * 17), "must have at most 16 items"),
    ({"entrypoint": "a/b"}, "spec.entrypoint in body should match"),
    ({"entrypoint": "a b"}, "spec.entrypoint in body should match"),
    ({"entrypoint": ""}, "at least 1 chars long"),
    ({"entrypoint": "x" * 254}, "Too long"),
    (server(image=""), "at least 1 chars long"),
    (server(image="a b"), "spec.server.image in body should match"),
    (server(args=["--x"] * 65), "must have at most 64 items"),
    (server(args=["x" * 4097]), "Too long"),
    (server(env=[{"name": "A"}] * 129), "must have at most 128 items"),
    (server(env=["A=1"]), "must be of type object"),
    *((explicit(name), "spec.server.loadModels[0] in body should match") for name in
      ("a/b", "a b", "a\n", "a\x01", "a\x7f", ".", "..", ".git")),
    (server(sharedMemory="1GB"), "spec.server.sharedMemory in body should match"),
    (server(sharedMemory=-1), "greater than or equal to 0"),
    (resources(limits={"cpu": "many"}), "spec.server.resources.limits.cpu in body should match"),
    (resources(limits={"cpu": -1}), "greater than or equal to 0"),
    (resources(limits={"memory": "-1Gi"}), "in body should match"),
    (resources(limits={f"example.com/{n}": 1 for n in range(33)}), "must have at most 32 items"),
    (clients(ipBlock={"cidr": "10.0.0.0"}), "spec.networkPolicy.clients[0].ipBlock.cidr in body should match"),
    (clients(ipBlock={"cidr": "example.com/24"}), "ipBlock.cidr in body should match"),
    (clients(ipBlock={"cidr": "10.0.0.0/8", "except": ["10.1.1.1"]}), "ipBlock.except[0] in body should match"),
    (clients(podSelector={"matchLabels": {"a": "b c"}}), "in body should match"),
    (egress(port="Http"), "spec.networkPolicy.egress[0].ports[0].port in body should match"),
    # Bounds
    (config(instance_group=[{"count": "2"}]), "spec.models[0].config.instance_group[0].count in body must be of type"),
    (config(instance_group=[{"count": 2**31}]), "less than or equal to 2147483647"),
    (config(version_policy={"all": {}, "latest": {}}), "version_policy: Too many: 2"),
    (config("net", "net"), "spec.models[1]: Duplicate value: "),
    (config("a/b"), "spec.models[0].name in body should match"),
    (egress(port=0), "greater than or equal to 1"),
    (egress(port=65536), "less than or equal to 65535"),
    (server(logVerbosity=-1), "greater than or equal to 0"),
    (server(logVerbosity=11), "less than or equal to 10"),
    ({"replicas": -1}, "greater than or equal to 0"),
    ({"replicas": 10001}, "less than or equal to 10000"),
    ({"replicas": "2"}, "must be of type integer"),
    ({"replicas": 1.5}, "must be of type integer"),
    (route(hostnames=[]), "should have at least 1 items"),
    (route(hostnames=["https://a.example.com"]), "spec.route.hostnames[0] in body should match"),
    (route(hostnames=["*"]), "spec.route.hostnames[0] in body should match"),
    (route(hostnames=["10.0.0.1:80"]), "spec.route.hostnames[0] in body should match"),
    (route(hostnames=["a", "a"]), "Duplicate value"),
    (route(gateway={}), "spec.route.gateway.name: Required value"),
    (route(gateway={"name": "a", "listener": "A"}), "spec.route.gateway.listener in body should match"),
    (route(hashHeader="x sequence"), "spec.route.hashHeader in body should match"),
    ({"disruption": {"maxUnavailable": -1}}, "greater than or equal to 0"),
    ({"disruption": {"maxUnavailable": "1"}}, "in body should match"),
    ({"rollout": {"maxSurge": "some"}}, "in body should match"),
    ({"rollout": {"maxSurge": -1}}, "greater than or equal to 0"),
    ({"rollout": {"maxUnavailable": "5"}}, "in body should match"),
    ({"rollout": {"startupSeconds": 9}}, "greater than or equal to 10"),
    ({"rollout": {"startupSeconds": 86401}}, "less than or equal to 86400"),
    ({"rollout": {"drainSeconds": -1}}, "greater than or equal to 0"),
    ({"rollout": {"drainSeconds": 3601}}, "less than or equal to 3600"),
    ({"rollout": {"exitSeconds": 0}}, "greater than or equal to 1"),
    ({"rollout": {"exitSeconds": 3601}}, "less than or equal to 3600"),
    # The pod template: types, and more than a pod could use
    ({"podTemplate": {"spec": []}}, "must be of type object"),
    (template(labels={"a": 1}), "must be of type string"),
    (template(labels={"a": "b c"}), "spec.podTemplate.metadata.labels.a in body should match"),
    (template(labels={f"l{n}": "" for n in range(65)}), "must have at most 64 items"),
    (template(annotations={f"a{n}": "" for n in range(65)}), "must have at most 64 items"),
    (template(annotations={"a": "x" * 16385}), "spec.podTemplate.metadata.annotations.a: Too long"),
    (template(annotations={f"a{n}": "x" * 16384 for n in range(4)}), "may have at most 65536 characters in total"),
    # The metadata of all objects
    *((common(**{field: {"a": "b", key: "c"}}), why)
      for field in ("labels", "annotations")
      for key, why in (
          ("tritonoperator.io/model", "has a name that the operator, Kubernetes or KEDA sets (app.kubernetes.io/name"),
          ("tritonoperator.io/x", "has a name that the operator"), ("app.kubernetes.io/name", "has a name that the op"),
          ("app.kubernetes.io/managed-by", "has a name that"), ("deployment.kubernetes.io/revision", "has a name that"),
          ("scaledobject.keda.sh/name", "has a name that the operator"),
          *((name, "has a name that Kubernetes doesn't allow: use at most 63 letters")
            for name in ("a b", "", "-a", "a-", "a/b/c", "/a", "a/", "A/b", "🚦", "x" * 64, "a" * 316 + "/b")),
      )),
    (common(labels={"a": "b c"}), "spec.commonMetadata.labels.a in body should match"),
    (common(labels={f"l{n}": "" for n in range(33)}), "must have at most 32 items"),
    (common(annotations={f"a{n}": "" for n in range(33)}), "must have at most 32 items"),
    (common(annotations={"a": "x" * 2049}), "spec.commonMetadata.annotations.a: Too long"),
    (pod(nodeSelector={"a": [{}] * 300_000}), "spec.podTemplate.spec.nodeSelector.a in body must be of type string"),
    (pod(nodeSelector={"a": 1}), "spec.podTemplate.spec.nodeSelector.a in body must be of type string"),
    (pod(nodeSelector={"a": "x" * 64}), "spec.podTemplate.spec.nodeSelector.a: Too long"),
    (pod(nodeSelector={f"l{n}": "x" for n in range(65)}), "must have at most 64 items"),
    (pod(affinity={"nodeAffinity": [{}]}), "must be of type object"),
    (pod(affinity=required(*[{}] * 65)), "nodeSelectorTerms: Too many: 65: must have at most 64 items"),
    (pod(affinity=required({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"] * 129}]})),
     "values: Too many: 129: must have at most 128 items"),
    *[(alert_label(name), "must not be one of the alerts' own labels: __name__, alertname, namespace")
      for name in (*ALERTS_OWN_LABELS, "not-a-label")],
    (pod(tolerations=[{"key": "a"}] * 65), "spec.podTemplate.spec.tolerations: Too many: 65"),
    (pod(tolerations=[{"key": ["a"]}]), "spec.podTemplate.spec.tolerations[0].key in body must be of type string"),
    (pod(topologySpreadConstraints=[{"maxSkew": 1}] * 65), "topologySpreadConstraints: Too many: 65"),
    (pod(topologySpreadConstraints=[{"maxSkew": "1"}]), "must be of type integer"),
    (pod(volumes=[{"name": "a", "emptyDir": {"medium": ["a"]}}]), "must be of type string"),
    (pod(containers="triton"), "spec.podTemplate.spec.containers in body must be of type array"),
    (pod(containers=[{"name": ["a"]}]), "spec.podTemplate.spec.containers[0].name in body must be of type string"),
    (container(args=["x"] * 129), "spec.podTemplate.spec.containers[0].args: Too many: 129"),
    (container(args=["x" * 32769]), "spec.podTemplate.spec.containers[0].args[0]: Too long"),
    (container(command=[{}]), "spec.podTemplate.spec.containers[0].command[0] in body must be of type string"),
    (container(env=[{"name": "A", "value": 1}]), "spec.podTemplate.spec.containers[0].env[0].value in body must be of"),
    (container(resources={"limits": {"cpu": {"a": 1}}}), "must have at most 0 items"),
    (container(resources={"limits": {"cpu": "many"}}), "limits.cpu in body should match"),
    (container(securityContext={"capabilities": {"add": [["a"]]}}), "must be of type string"),
    (server(env=[{"name": "A", "value": 1}]), "spec.server.env[0].value in body must be of type string"),
    (server(env=[{"name": "A", "value": "x" * 32769}]), "spec.server.env[0].value: Too long"),
    (server(env=[{"name": "A", "valueFrom": {"secretKeyRef": [1]}}]), "must be of type object"),
    (server(env=[{"name": "A"}] * 129), "spec.server.env: Too many: 129"),
    (behavior(scaleUp={"policies": "fast"}), "must be of type array"),
    (behavior(scaleUp={"policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}] * 65}), "Too many: 65"),
]  # fmt: skip


def create(api: Api, spec: dict[str, Any], name: str = gen.NAME) -> None:
    obj = gen.raw(name=name, **spec)
    obj["metadata"] = {"name": name}
    if obj["spec"].get("modelImage", 1) is None:
        del obj["spec"]["modelImage"]
    api.request("POST", api.path("TritonModel") + "?dryRun=All&fieldValidation=Strict", obj)


@pytest.mark.parametrize(("spec", "message"), REFUSED, ids=lambda v: str(v)[:60] if isinstance(v, dict) else "")
def test_rejects_invalid_specs(spec: dict[str, Any], message: str, api: Api) -> None:
    with pytest.raises(RefusedError) as refusal:
        create(api, spec)
    assert refusal.value.code == 422
    assert message in refusal.value.message


@pytest.mark.parametrize("flag", RESERVED_FLAGS)
def test_rejects_every_reserved_flag(flag: str, api: Api) -> None:
    """This includes abbreviations, which getopt_long completes."""
    for form in (f"--{flag}", f"--{flag}=1", f"--{flag[:-1]}=1", f"--{flag[:3]}"):
        with pytest.raises(RefusedError, match="args has a flag"):
            create(api, server(args=[form]))
    create(api, server(args=[f"--{flag}-of-tomorrow=1"]))


ACCEPTED: list[dict[str, Any]] = [
    {},
    server(modelControl="explicit", loadModels=["a"]),
    explicit("a", "b"),
    {**explicit("b", "c"), **health("a/x.json")},
    {**server(args=["--http-restricted-api=trace,model-repository:inference=x"]), **health("a/x.json")},
    {**explicit("b", "c"), **health("c/warmup/x_1")},
    {**explicit("*"), **health("d/x.json")},
    health("Détection-🚦/X.jpg"),
    explicit("Détection-🚦", "a.b", "a=b", "*", "-a"),
    config("net", "Détection-🚦", max_batch_size=0, dynamic_batching={}, instance_group=[{"gpus": [0, 1]}],
           parameters={"a": {"string_value": "$$X"}}, version_policy={"specific": {"versions": [3]}}),
    {**server(args=["--model-config-name=fast"]), "models": []},
    {**server(args=["--cache-config=local,size=1000000"]), **health("a/x.json"),
     **config("b", response_cache={"enable": True})},
    {**health("a/x.json"), **config("a", response_cache={"enable": True})},
    resources(limits={"cpu": "1", "memory": "1Gi"}, requests={"cpu": "1000m", "memory": "1024Mi"}),
    resources(limits={"nvidia.com/gpu": 1}, requests={"nvidia.com/gpu": "1"}),
    resources(requests={"cpu": ".5", "memory": "1e9"}),
    resources(limits={}),
    {"rollout": {"maxSurge": 0}},
    {"rollout": {"maxSurge": "0%", "maxUnavailable": 1}},
    {"rollout": {"maxSurge": 0, "maxUnavailable": "100%"}},
    server(args=["--log-info=false", "--metrics-interval-ms=1000", "--log-file", "/tmp/http", "-", "--http-portal"]),
    server(args=["--http-restricted-api=metadata:key=health", "--log-file=/opt/tritonserver", "--x=a b"]),
    server(args=["--http-address=ipv6:[::]"]),
    server(args=["--grpc-restricted-protocol", "health:key=abc", "--ok", "/opt/tritonserver/x=1 y"]),
    server(args=["--metrics-config=histogram_latencies=true"]),
    server(args=["--metrics-config", "summary_quantiles=0.5:0.05"], env=[{"name": "A", "value": "1"}]),
    image(path="/", pullPolicy="Never", delivery="ImageVolume"),
    {"networkPolicy": {}},
    {"networkPolicy": {"clients": [], "monitoring": [], "egress": [{}]}},
    clients(ipBlock={"cidr": "2001:db8::/32", "except": ["2001:db8:1::/48"]}),
    expression(key="example.com/a", operator="NotIn", values=["b", ""]),
    egress(port="https"),
    egress(port=1, endPort=65535, protocol="SCTP"),
    egress(),
    common(labels={"cost-centre": "4711", "example.com/A_b.c": "", "x" * 63: "y"}, annotations={"a": "🚦" * 2048}),
    common(labels={f"example.com/l{n}": "x" * 63 for n in range(32)}, annotations={}),
    {"replicas": 0},
    {"autoscaling": {"engine": "KEDA", "min": 0, "max": 1}},
    {"autoscaling": {"engine": "None", "min": 0, "max": 1}},
    {"entrypoint": "Détection-🚦"},
    behavior(scaleDown={"policies": [{"type": "Percent", "value": 25, "periodSeconds": 60}], "selectPolicy": "Min",
                        "stabilizationWindowSeconds": 300, "tolerance": "0.05"}),
    # A Kubernetes to come may have other values.
    pod(tolerations=[{"key": "example.com/level", "operator": "Gt", "value": "3", "effect": "NoSchedule"}]),
    pod(restartPolicy="SomeOther"),
    # Null removes a rendered field.
    pod(securityContext={"fsGroup": None}, containers=[{"name": "triton", "livenessProbe": None}]),
    container(readinessProbe={"httpGet": {"path": "/only-a-part"}}),
    container(resources={"limits": {"cpu": 0.5, "memory": "1Gi", "nvidia.com/gpu": 1}}),
    *PODS.values(),
]  # fmt: skip


@pytest.mark.parametrize("spec", ACCEPTED, ids=lambda v: str(v)[:60])
def test_accepts_valid_specs(spec: dict[str, Any], api: Api) -> None:
    create(api, spec)


@pytest.mark.parametrize(
    ("name", "message"),
    [("x" * 55, "must have at most 54 characters"), ("1model", "must start with a letter"),
     ("a.b", "must start with a letter"), ("x" * 54, ""), ("a-1", "")],
)  # fmt: skip
def test_rejects_names_that_are_too_long_for_a_service(name: str, message: str, api: Api) -> None:
    if not message:
        return create(api, {}, name)
    with pytest.raises(RefusedError, match=message):
        return create(api, {}, name)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (pod(affinity=nested(60)), "spec.podTemplate.spec.affinity.a"),
        (pod(fieldOfNobody=1), "spec.podTemplate.spec.fieldOfNobody"),
        (config(input=[]), "spec.models[0].config.input"),
        (config(instance_group=[{"knd": "KIND_CPU"}]), "spec.models[0].config.instance_group[0].knd"),
        (server(env=[{"name": "A", "other": nested(60)}]), "spec.server.env[0].other"),
        (behavior(anything=nested(60)), "spec.autoscaling.behavior.anything"),
        (pod(nodeSelector=nested(60)), "spec.podTemplate.spec.nodeSelector.a.a"),
        ({"replica": 2}, "spec.replica"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_rejects_unknown_fields_and_names_them(spec: dict[str, Any], field: str, api: Api) -> None:
    with pytest.raises(RefusedError) as refusal:
        create(api, spec)
    assert f'unknown field "{field}"' in refusal.value.message


def test_sets_defaults(api: Api) -> None:
    api.create({**gen.raw(), "metadata": {"name": "x", "namespace": api.namespace}})
    spec = api.get("TritonModel", "x")["spec"]
    assert spec["rollout"] == {"startupSeconds": 600, "drainSeconds": 15, "exitSeconds": 30}
    assert spec["modelImage"]["delivery"] == "Auto"
    assert spec["disruption"] == {"maxUnavailable": 1}
    assert "replicas" not in spec


@pytest.mark.parametrize("spec", PODS.values(), ids=PODS.keys())
def test_api_server_accepts_the_deployment_of_a_pod_template(spec: dict[str, Any], api: Api) -> None:
    model = gen.model(**spec)
    [deployment] = [o for o in render(model, Facts("tools:1", "Copy")) if o["kind"] == "Deployment"]
    deployment["metadata"] = {"name": gen.NAME, "labels": deployment["metadata"]["labels"]}
    api.request("POST", api.path("Deployment") + "?dryRun=All&fieldValidation=Strict", deployment)


def test_stores_a_pod_template_unchanged(api: Api) -> None:
    for name, spec in PODS.items():
        pod_template = make(api, name.replace("_", "-"), **spec)["spec"]["podTemplate"]
        assert pod_template == spec["podTemplate"] | {"metadata": pod_template.get("metadata", {})}


REMOVED = {"WorkloadReference"}
"""Alpha types of an earlier version. Kubernetes 1.36 has removed the one of 1.35."""


def test_embedded_types_equal_those_of_the_api_server(control_plane: ControlPlane) -> None:
    """A newer API server may have more of them, and an older one fewer, except those that were removed since."""
    ours = _fields(json.loads(kubernetes_types.TARGET.read_text()))
    fields = _fields(kubernetes_types.types(control_plane.api))
    theirs = {place: kind for place, kind in fields.items() if REMOVED.isdisjoint((place[0], kind))}
    match controlplane.compared():
        case "newer":
            assert ours.items() <= theirs.items()
        case "older":
            assert theirs.items() <= ours.items()
        case "same":
            assert ours == theirs, "run hack/kubernetes_types.py"


def _fields(types: dict[str, dict[str, str]]) -> dict[tuple[str, str], str]:
    return {(name, field): type_ for name, fields in types.items() for field, type_ in fields.items()}
