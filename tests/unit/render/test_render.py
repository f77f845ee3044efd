"""The rules of rendering, one by one. tests/golden has the complete objects."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from support import gen
from triton_operator.api import names
from triton_operator.api.types import Omittable, TritonModel
from triton_operator.render import Facts, choose, endpoint, render, start
from triton_operator.render.delivery import BUSYBOX
from triton_operator.render.deployment import pod_template
from triton_operator.render.facts import Capabilities
from triton_operator.render.merge import merge

COPY, MOUNT = Facts("operator:1", "Copy"), Facts("operator:1", "ImageVolume")
GPU = {"resources": {"limits": {"nvidia.com/gpu": 1, "memory": "8Gi"}}}


def of_kind(kind: str, model: TritonModel, facts: Facts = COPY) -> list[dict[str, Any]]:
    return [o for o in render(model, facts) if o["kind"] == kind]


def deployment(facts: Facts = COPY, **spec: Any) -> dict[str, Any]:
    return of_kind("Deployment", gen.model(**spec), facts)[0]


def pod(facts: Facts = COPY, **spec: Any) -> dict[str, Any]:
    return deployment(facts, **spec)["spec"]["template"]["spec"]


def triton(**spec: Any) -> dict[str, Any]:
    return next(c for c in pod(**spec)["containers"] if c["name"] == names.CONTAINER_SERVER)


def volume(name: str, facts: Facts = COPY, **spec: Any) -> dict[str, Any]:
    return next(v for v in pod(facts, **spec)["volumes"] if v["name"] == name)


# Every object


def test_every_object_has_an_owner_and_labels() -> None:
    for obj in render(gen.model(replicas=2), Facts("operator:1", "Copy", 2)):
        metadata = obj["metadata"]
        assert metadata["namespace"] == gen.NAMESPACE
        extra = {names.LABEL_KEPT} if obj["kind"] == "Deployment" else set()
        assert metadata["labels"].keys() - extra == names.labels(gen.NAME).keys()
        assert names.labels(gen.NAME).items() <= metadata["labels"].items()
        (owner,) = metadata["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["kind"]) == (gen.UID, True, "TritonModel")


COMMON = {"labels": {"team": "vision", "cost": "1"}, "annotations": {"team": "vision", "cost": "1"}}


def test_every_object_and_its_pods_have_the_common_metadata() -> None:
    model = gen.model(
        replicas=2,
        commonMetadata=COMMON,
        monitoring={"labels": {"team": "monitoring"}},
        podTemplate={"metadata": {"labels": {"team": "serving"}, "annotations": {"team": "serving"}}},
    )
    own = names.labels(gen.NAME)
    objects = render(model, Facts("operator:1", "Copy", 2, entrypoint="detection"))
    assert len({o["kind"] for o in objects}) == 6
    for obj in objects:
        team = "monitoring" if obj["kind"] in ("PodMonitor", "PrometheusRule") else "vision"
        labels = {key: value for key, value in obj["metadata"]["labels"].items() if key != names.LABEL_KEPT}
        assert labels == {"team": team, "cost": "1", **own}, obj["kind"]
        assert obj["metadata"]["annotations"].items() >= COMMON["annotations"].items(), obj["kind"]
    pods = of_kind("Deployment", model)[0]["spec"]["template"]["metadata"]
    assert pods["labels"] == {"team": "serving", "cost": "1", **own}
    assert pods["annotations"].items() >= {"team": "serving", "cost": "1"}.items()
    assert model.monitoring_labels["cost"] == "1"


def test_common_metadata_changes_no_selector_and_no_annotation_of_the_operator() -> None:
    facts = Facts("operator:1", "Copy", 2, entrypoint="detection", prometheus="http://p")
    keda = {"engine": "KEDA", "max": 2}
    for spec in ({"networkPolicy": {}, "replicas": 2}, {"autoscaling": keda}):
        for without, having in zip(
            render(gen.model(**spec), facts), render(gen.model(**spec, commonMetadata=COMMON), facts), strict=True
        ):
            plain, own = without["metadata"].get("annotations", {}), having["metadata"]["annotations"]
            assert own.keys() == {*plain, "team", "cost"}
            hashes = {names.ANNOTATION_TEMPLATE, names.ANNOTATION_SPEC, names.ANNOTATION_POD_TEMPLATE}
            assert all(own[key] == plain[key] for key in plain.keys() - hashes)
            for part in (without, having):
                part.get("spec", {}).pop("template", None)
            assert without.get("spec") == having.get("spec")


@pytest.mark.parametrize("field", ["labels", "annotations"])
@pytest.mark.parametrize("key", [
    *names.labels(gen.NAME), names.ANNOTATION_TEMPLATE, names.ANNOTATION_POD_TEMPLATE, "tritonoperator.io/of-tomorrow",
    "deployment.kubernetes.io/revision", "scaledobject.keda.sh/name", "scaledobject.keda.sh/hpa-excluded-labels",
])  # fmt: skip
def test_common_metadata_has_no_names_that_programs_set_on_the_objects(field: str, key: str) -> None:
    with pytest.raises(ValidationError, match="has a name that the operator, Kubernetes or KEDA sets"):
        gen.model(commonMetadata={field: {"team": "a", key: "b"}})


def test_selectors_do_not_depend_on_mutable_fields() -> None:
    before = render(gen.model(replicas=2), Facts("operator:1", "Copy", 2))
    after = render(gen.model(replicas=9, server=GPU, entrypoint="x"), Facts("operator:2", "ImageVolume", 9))
    for left, right in zip(before, after, strict=True):
        assert left["spec" if "spec" in left else "kind"] is not None
        if "spec" in left:
            assert left["spec"]["selector"] == right["spec"]["selector"]


def test_render_does_not_modify_its_arguments() -> None:
    model = gen.model(podTemplate={"metadata": {"labels": {"team": "vision"}, "annotations": {"a": "b"}}})
    before = copy.deepcopy(model)
    first = render(model, COPY)
    assert model == before
    assert render(model, COPY) == first


def test_two_models_have_no_common_object() -> None:
    render(gen.model(), COPY)
    other = TritonModel.model_validate(gen.raw(name="other"))
    assert of_kind("Deployment", other)[0]["spec"]["template"]["metadata"]["labels"] == names.labels("other")


def test_endpoint_is_the_url_of_the_service() -> None:
    service, headless = of_kind("Service", gen.model())
    assert endpoint(gen.model()) == f"http://{service['metadata']['name']}.{gen.NAMESPACE}.svc:8000"
    assert headless["spec"]["clusterIP"] == "None"
    assert {p["port"] for p in service["spec"]["ports"]} == {8000, 8001, 8002}


def test_session_affinity_concerns_the_service_with_an_address_only() -> None:
    service, headless = of_kind("Service", gen.model(service={"sessionAffinity": "ClientIP"}))
    assert service["spec"]["sessionAffinity"] == "ClientIP"
    assert "sessionAffinity" not in headless["spec"]
    assert all("sessionAffinity" not in obj["spec"] for obj in of_kind("Service", gen.model()))


# The Deployment


def test_deployment_has_replicas_only_if_the_spec_has_them() -> None:
    assert "replicas" not in deployment()["spec"]
    assert deployment(replicas=0)["spec"]["replicas"] == 0
    assert deployment(replicas=3)["spec"]["replicas"] == 3


@pytest.mark.parametrize(
    ("server", "rollout", "expected"),
    [
        ({}, {}, (1, 0)),
        (GPU, {}, (0, 1)),
        ({"resources": {"limits": {"nvidia.com/gpu": "0"}}}, {}, (1, 0)),
        ({"resources": {"limits": {"amd.com/npu": 1}}}, {}, (0, 1)),
        ({"resources": {"limits": {"aliyun.com/gpu-mem": 6}}}, {}, (0, 1)),
        ({"resources": {"limits": {"rdma/hca_shared": 1}}}, {}, (1, 0)),
        ({"resources": {"limits": {"openshift.io/mlx_sriov_rdma": 1}}}, {}, (1, 0)),
        (GPU, {"maxSurge": 1}, (1, 0)),
        (GPU, {"maxSurge": "50%"}, ("50%", 0)),
        # If no pod may be unavailable, only a surge pod can start the rollout.
        (GPU, {"maxUnavailable": 0}, (1, 0)),
        (GPU, {"maxUnavailable": "0%"}, (1, "0%")),
        (GPU, {"maxUnavailable": 2}, (0, 2)),
        ({}, {"maxSurge": 0}, (0, 1)),
        ({}, {"maxSurge": "0%"}, ("0%", 1)),
        ({}, {"maxSurge": 2, "maxUnavailable": 1}, (2, 1)),
    ],
)
def test_surge_by_accelerators(server: dict[str, Any], rollout: dict[str, Any], expected: tuple[Any, Any]) -> None:
    update = deployment(server=server, rollout=rollout)["spec"]["strategy"]["rollingUpdate"]
    assert (update["maxSurge"], update["maxUnavailable"]) == expected


def test_names_a_pull_secret_once() -> None:
    """The API server refuses a pod template with two of the same name."""
    image = {"reference": "a", "pullSecrets": [{"name": "b"}, {"name": "a"}, {"name": "b"}]}
    assert pod(modelImage=image)["imagePullSecrets"] == [{"name": "b"}, {"name": "a"}]


NVIDIA = "nvcr.io/nvidia/tritonserver"
BACKENDS = {"containers": [{"name": "triton", "volumeMounts": [{"mountPath": "/opt/tritonserver/backends/vllm"}]}]}


@pytest.mark.parametrize(
    ("spec", "flag", "expected"),
    [
        ({"server": {"image": f"{NVIDIA}:25.01-py3"}}, "--lacks", ["--lacks=tensorrtllm,vllm"]),
        ({"server": {"image": f"{NVIDIA}:25.03-py3"}}, "--lacks", ["--lacks=tensorflow,tensorrtllm,vllm"]),
        ({"server": {"image": "registry.example.com/tritonserver:25.03-py3"}}, "--lacks", []),
        ({"server": {"image": f"{NVIDIA}:25.03-py3", "args": ["--backend-directory=/b"]}}, "--lacks", []),
        ({"server": {"image": f"{NVIDIA}:25.03-py3"}, "podTemplate": {"spec": BACKENDS}}, "--lacks", []),
        ({"server": {"args": ["--strict-model-config", "ON", "--pinned-memory-pool-byte-size=1"]}}, "--server-arg",
         ["--server-arg=--strict-model-config=ON"]),
        ({"server": {"args": ["--cache-config=redis,password=secret"]}}, "--server-arg",
         ["--server-arg=--cache-config=redis"]),
        ({"server": {"resources": {"limits": {"ephemeral-storage": "2Gi"}}}}, "--storage", [f"--storage={2 << 30}"]),
        ({"podTemplate": {"spec": {"containers": [{"name": "triton", "resources": {"limits":
          {"ephemeral-storage": "1k"}}}]}}}, "--storage", ["--storage=1000"]),
        ({"server": {"resources": {"limits": {"ephemeral-storage": "2Gi"}}}, "podTemplate": {"spec": {"containers":
          [{"name": "proxy"}]}}}, "--storage", []),
        ({"server": {"resources": {"limits": {"habana.ai/gaudi": 1}}}}, "--gpus", ["--gpus=0"]),
        ({"server": {"resources": {"limits": {"google.com/tpu": 4}}}}, "--gpus", ["--gpus=0"]),
        ({"server": {"resources": {"limits": {"example.com/vgpu": 2}}}}, "--gpus", []),
        ({"server": {"resources": {"limits": {"amd.com/gpu": 2}}}}, "--gpus", ["--gpus=2"]),
        ({"server": {"resources": {"limits": {"nvidia.com/mig-1g.10gb": 1, "nvidia.com/mig-2g.20gb": 1}}}}, "--gpus",
         ["--gpus=2"]),
        ({"server": {"resources": {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3}}}}, "--gpus", ["--gpus=1"]),
        ({"server": {"resources": {"limits": {"aliyun.com/gpu-mem": 6}}}}, "--gpus", []),
        ({"server": {"resources": {"limits": {"volcano.sh/vgpu-memory": 4}}}}, "--gpus", []),
        ({"server": {"resources": {"limits": {"rdma/hca_shared": 1}}}}, "--gpus", ["--gpus=0"]),
        ({"server": {"resources": {"limits": {"vpc.amazonaws.com/efa": 4, "nvidia.com/gpu": 8}}}}, "--gpus",
         ["--gpus=8"]),
    ],
)  # fmt: skip
def test_the_check_knows_the_image_the_flags_and_the_devices(
    spec: dict[str, Any], flag: str, expected: list[str]
) -> None:
    template = deployment(**spec)["spec"]["template"]["spec"]
    (command,) = (c["command"] for c in template["initContainers"] if c["name"] == "check")
    assert [argument for argument in command if argument.startswith(flag)] == expected


CLAIM = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]}
IN_TEMPLATE: list[tuple[dict[str, Any], dict[str, Any], tuple[int, int], list[str]]] = [
    ({}, {}, (1, 0), ["--gpus=0"]),
    # A claim doesn't say how many devices it is.
    ({}, CLAIM, (0, 1), []),
    ({}, {"containers": [{"name": "triton", "resources": {"limits": {"nvidia.com/gpu": 2}}}]}, (0, 1), ["--gpus=2"]),
    (GPU, {"containers": [{"name": "triton", "resources": {"limits": {"nvidia.com/gpu": None}}}]}, (1, 0),
     ["--gpus=0"]),
    ({}, {"containers": [{"name": "proxy", "resources": {"limits": {"nvidia.com/gpu": 2}}}]}, (1, 0), ["--gpus=0"]),
    ({}, {"containers": [{"name": "triton", "resources": {"limits": {"nvidia.com/gpu": "?"}}}]}, (1, 0), ["--gpus=0"]),
]  # fmt: skip


@pytest.mark.parametrize(("server", "template", "expected", "gpus"), IN_TEMPLATE)
def test_devices_in_the_pod_template_count(
    server: dict[str, Any], template: dict[str, Any], expected: tuple[int, int], gpus: list[str]
) -> None:
    """With a surge pod, a rollout would wait for a device that only the old server can release."""
    spec = deployment(server=server, podTemplate={"spec": template})["spec"]
    update = spec["strategy"]["rollingUpdate"]
    assert (update["maxSurge"], update["maxUnavailable"]) == expected
    (command,) = (c["command"] for c in spec["template"]["spec"]["initContainers"] if c["name"] == "check")
    assert [a for a in command if a.startswith("--gpus")] == gpus


@pytest.mark.parametrize(
    ("server", "size"),
    [
        ({}, "1Gi"),
        ({"resources": {"limits": {"memory": "8Gi"}}}, "4096Mi"),
        ({"resources": {"limits": {"memory": "1G"}}}, "477Mi"),  # 476.8 rounded up
        ({"resources": {"limits": {"memory": "100Mi"}}}, "64Mi"),  # the minimum for Triton
        ({"resources": {"limits": {"memory": 1073741824}}}, "512Mi"),
        ({"resources": {"limits": {"memory": "8Gi"}}, "sharedMemory": "2Gi"}, "2Gi"),
        ({"resources": {"requests": {"memory": "8Gi"}}}, "1Gi"),
    ],
)
def test_size_of_shared_memory(server: dict[str, Any], size: str) -> None:
    assert volume("shm", server=server)["emptyDir"] == {"medium": "Memory", "sizeLimit": size}


@pytest.mark.parametrize(("drain", "leave"), [(15, 30), (0, 1), (3600, 3600)])
def test_grace_period_covers_drain_and_exit(drain: int, leave: int) -> None:
    spec = pod(rollout={"drainSeconds": drain, "exitSeconds": leave})
    server = spec["containers"][0]
    assert spec["terminationGracePeriodSeconds"] > drain + leave
    # Kubernetes before 1.33 rejects a sleep of 0 seconds.
    assert server.get("lifecycle") == ({"preStop": {"sleep": {"seconds": drain}}} if drain else None)
    assert f"--exit-timeout-secs={leave}" in server["args"]


@pytest.mark.parametrize(("drain", "milliseconds"), [(15, 5000), (1, 1000), (0, 1000), (3600, 1200000)])
def test_closes_grpc_channels_within_the_drain(drain: int, milliseconds: int) -> None:
    assert f"--grpc-max-connection-age={milliseconds}" in triton(rollout={"drainSeconds": drain})["args"]


def test_progress_deadline_is_longer_than_the_startup_probe() -> None:
    spec = deployment(rollout={"startupSeconds": 1800})["spec"]
    probe = spec["template"]["spec"]["containers"][0]["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 1800
    assert spec["progressDeadlineSeconds"] > 1800


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({}, "/v2/health/ready"),
        ({"entrypoint": "detection"}, "/v2/models/detection/ready"),
        ({"entrypoint": "a+b?c%"}, "/v2/models/a%2Bb%3Fc%25/ready"),
    ],
)
def test_readiness_probe_uses_the_entrypoint(spec: dict[str, Any], path: str) -> None:
    server = triton(**spec)
    assert server["readinessProbe"]["httpGet"]["path"] == path
    # Kubernetes must not restart a server because one model fails.
    assert server["livenessProbe"]["httpGet"]["path"] == "/v2/health/live"


def test_user_arguments_come_after_those_of_explicit_model_control() -> None:
    args = triton(
        entrypoint="a",
        server={"modelControl": "explicit", "loadModels": ["a", "b"], "args": ["--x=1"], "logVerbosity": 2},
    )["args"]
    assert "--model-control-mode=explicit" in args
    assert "--log-verbose=2" in args
    assert args[-1] == "--x=1"
    assert not any(a.startswith("--log-verbose") for a in triton()["args"])


@pytest.mark.parametrize("name", ["HOME", "USER", "A"])
def test_sets_two_variables_once_and_keeps_the_users(name: str) -> None:
    variables = triton(server={"env": [{"name": name, "value": "x"}]})["env"]
    values = {variable["name"]: variable["value"] for variable in variables}
    assert len(variables) == len(values)
    assert values == {"HOME": "/tmp", "USER": "triton-server", name: "x"}


def test_cluster_autoscaler_may_drain_a_node_with_our_volumes() -> None:
    """It keeps nodes with other volumes, such as those that the user adds."""
    spec = {"podTemplate": {"spec": {"volumes": [{"name": "more", "emptyDir": {}}]}}}
    key = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
    assert deployment(**spec)["spec"]["template"]["metadata"]["annotations"][key] == "models,tools,shm,tmp"
    own = {"podTemplate": {"metadata": {"annotations": {key: "tmp"}}}}
    assert deployment(**own)["spec"]["template"]["metadata"]["annotations"][key] == "tmp"


@pytest.mark.parametrize(
    ("image", "latency", "summaries"),
    [
        (f"{NVIDIA}:25.04-py3", None, True), (f"{NVIDIA}:25.04-py3", {}, False), ("own:1", {}, False),
        # Tracing could end this one, so nothing measures it.
        (f"{NVIDIA}:25.03-py3", {}, True),
    ],
)  # fmt: skip
def test_measured_latency_replaces_the_summaries(image: str, latency: dict[str, str] | None, summaries: bool) -> None:
    args = triton(server={"image": image}, monitoring={"latency": latency})["args"]
    assert ("--metrics-config=summary_latencies=true" in args) is summaries


@pytest.mark.parametrize("spec", [
    {}, {"monitoring": {"latency": {}}}, {"monitoring": {"latency": {}, "processes": True}},
    {"monitoring": {"processes": True}, "podTemplate": {"spec": {"containers": [{"name": "proxy", "image": "p:1"}]}}},
])  # fmt: skip
def test_the_check_knows_how_many_containers_share_the_termination_messages(spec: dict[str, Any]) -> None:
    whole = pod(**spec)
    (check,) = [c for c in whole["initContainers"] if c["name"] == names.CONTAINER_CHECK]
    assert f"--containers={len(whole['initContainers']) + len(whole['containers'])}" in check["command"]


def test_init_containers_request_no_more_than_the_server() -> None:
    resources = {"limits": {"cpu": 4, "memory": "8Gi", "nvidia.com/gpu": 1}, "requests": {"cpu": 2}}
    for container in pod(server={"resources": resources})["initContainers"]:
        assert container["resources"] == {"limits": {"cpu": 4, "memory": "8Gi"}, "requests": {"cpu": 2}}
    assert all("resources" not in c for c in pod()["initContainers"])


def test_every_container_is_hardened_by_default() -> None:
    spec = pod()
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["automountServiceAccountToken"] is False
    for container in [*spec["initContainers"], *spec["containers"]]:
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


# Delivery


def test_copy_runs_in_a_container_of_the_model_image() -> None:
    spec = pod(modelImage={"reference": "r:1", "path": "/srv/models/", "pullPolicy": "Always"})
    tools, fetch, check = spec["initContainers"]
    assert (tools["image"], fetch["image"], check["image"]) == ("operator:1", "r:1", "operator:1")
    assert fetch["command"][1:] == ["cp", "-r", "/srv/models/.", "/.triton-operator/models"]
    assert fetch["imagePullPolicy"] == "Always"
    # check and the server mount the volume that fetch fills.
    filled = {m["name"] for m in fetch["volumeMounts"] if not m.get("readOnly")}
    assert filled == {"models"}
    for container in (check, spec["containers"][0]):
        (mount,) = [m for m in container["volumeMounts"] if m["name"] == "models"]
        assert mount == {"name": "models", "mountPath": "/models", "readOnly": True}
    assert volume("models")["emptyDir"] == {}


@pytest.mark.parametrize(("path", "sub_path"), [("/models", "models"), ("/a/b/", "a/b"), ("/", None)])
def test_image_volume_mounts_the_path_in_the_image(path: str, sub_path: str | None) -> None:
    image = {"reference": "r:1", "path": path, "pullPolicy": "Always"}
    spec = pod(MOUNT, modelImage=image)
    assert volume("models", MOUNT, modelImage=image)["image"] == {"reference": "r:1", "pullPolicy": "Always"}
    (mount,) = [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "models"]
    assert mount.get("subPath") == sub_path
    fetch = spec["initContainers"][1]
    assert fetch["image"] == "r:1"  # still runs, because its status has the digest
    assert all(m["name"] != "models" for m in fetch["volumeMounts"])


def test_check_gets_the_expectations_and_the_path_of_its_report() -> None:
    spec = pod(entrypoint="a", server={"modelControl": "explicit", "loadModels": ["a", "b"]})
    command = spec["initContainers"][2]["command"]
    models = "--load-models-file=/.triton-operator/load-models/models"
    assert {"--entrypoint=a", models, "--termination-log=/dev/termination-log"} <= set(command)
    assert command[-1] == "/models"


@pytest.mark.parametrize(
    ("env", "flags"),
    [
        ([], []),
        ([{"name": "OMP_NUM_THREADS", "value": "4"}], ["--numpy-threads=4"]),
        ([{"name": "OMP_NUM_THREADS", "value": "4"}, {"name": "OPENBLAS_NUM_THREADS", "value": "200"}],
         ["--numpy-threads=64"]),
        ([{"name": "OMP_NUM_THREADS", "value": "all"}], []),
        ([{"name": "OMP_NUM_THREADS", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}], []),
    ],
)  # fmt: skip
def test_check_gets_the_threads_that_the_spec_sets(env: Any, flags: list[str]) -> None:
    pool = "--backend-config=python,thread-pool-size=1"
    command = pod(server={"env": env, "args": [pool]})["initContainers"][2]["command"]
    assert [part for part in command if "threads" in part] == flags
    assert f"--server-arg={pool}" in command


def test_the_command_of_the_server_depends_on_repair_and_stays_as_it_is_in_kubernetes() -> None:
    restart, report = (pod(repair=repair)["containers"][0]["command"][3] for repair in ("Restart", "Report"))
    assert restart.replace("repair=Restart", "repair=Report") == report
    for line in (f"busybox={BUSYBOX}", f"died='{start.DIED}'", f"ulimit -S -s {start.STACK_KIB} "):
        assert line in restart
    # Kubernetes makes one dollar sign of two, and puts values for $(NAME).
    assert "$$" not in restart
    assert not re.search(r"\$\([A-Za-z_]+\)", restart)


# podTemplate


def test_merges_the_pod_template_by_name() -> None:
    spec = pod(
        podTemplate={
            "spec": {
                "nodeSelector": {"gpu": "h200"},
                "containers": [
                    {"name": "triton", "env": [{"name": "A", "value": "1"}], "livenessProbe": None},
                    {"name": "sidecar", "image": "s:1"},
                ],
                "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "more", "emptyDir": {}}],
                "securityContext": {"runAsUser": 2000},
            }
        }
    )
    server, sidecar = spec["containers"]
    assert spec["nodeSelector"] == {"gpu": "h200", "kubernetes.io/os": "linux"}
    assert [e["name"] for e in server["env"]] == ["HOME", "USER", "A"]
    assert server["command"] == start.command()
    assert "livenessProbe" not in server
    assert sidecar == {"name": "sidecar", "image": "s:1"}
    assert {v["name"] for v in spec["volumes"]} == {"models", "tools", "shm", "tmp", "more"}
    assert spec["securityContext"] == {"runAsNonRoot": True, "runAsUser": 2000, "runAsGroup": 1000, "fsGroup": 1000,
                                       "fsGroupChangePolicy": "OnRootMismatch",
                                       "seccompProfile": {"type": "RuntimeDefault"}}  # fmt: skip


def test_a_source_or_a_handler_replaces_the_operators() -> None:
    """Kubernetes refuses two of them, and plain kubectl apply can't remove the operator's by null."""
    claim = {"claimName": "scratch"}
    template = {
        "containers": [{
            "name": "triton",
            "livenessProbe": {"tcpSocket": {"port": "http"}},
            "lifecycle": {"preStop": {"exec": {"command": ["sleep", "9"]}}},
            "env": [{"name": "HOME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        }],
        "volumes": [{"name": "tmp", "persistentVolumeClaim": claim}, {"name": "shm", "emptyDir": {"sizeLimit": "9Gi"}}],
    }  # fmt: skip
    spec = pod(podTemplate={"spec": template})
    server = spec["containers"][0]
    assert "httpGet" not in server["livenessProbe"]
    assert server["livenessProbe"]["tcpSocket"] == {"port": "http"}
    assert server["lifecycle"] == {"preStop": {"exec": {"command": ["sleep", "9"]}}}
    assert server["env"][0] == {"name": "HOME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    volumes = {v["name"]: v for v in spec["volumes"]}
    assert volumes["tmp"] == {"name": "tmp", "persistentVolumeClaim": claim}
    assert volumes["shm"] == {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "9Gi"}}


def field_at(value: Any, path: str) -> Any:
    """Returns the field, such as spec.containers.triton.livenessProbe; None without it."""
    for key in path.split("."):
        value = next((i for i in value if i["name"] == key), {}) if isinstance(value, list) else (value or {}).get(key)
    return value


@pytest.mark.parametrize("path", get_args(Omittable))
def test_leaves_out_what_the_user_names(path: str) -> None:
    rendered = deployment()["spec"]["template"]
    assert field_at(rendered, path) is not None
    omitted = deployment(podTemplate={"omit": [path]})["spec"]["template"]
    assert field_at(omitted, path) is None
    above, _, key = path.rpartition(".")
    assert field_at(omitted, above) == {k: v for k, v in field_at(rendered, above).items() if k != key}


def test_a_users_value_is_no_field_of_the_operator() -> None:
    template = {"omit": ["spec.securityContext.runAsUser"], "spec": {"securityContext": {"runAsUser": 7}}}
    assert pod(podTemplate=template)["securityContext"]["runAsUser"] == 7


def test_openshift_sets_the_user_and_the_groups() -> None:
    openshift = replace(COPY, cluster=Capabilities(openshift=True))
    assert pod(openshift)["securityContext"] == {
        "runAsNonRoot": True,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    template = {"spec": {"securityContext": {"fsGroup": 7}}}
    assert pod(openshift, podTemplate=template)["securityContext"]["fsGroup"] == 7


def test_a_command_in_the_pod_template_replaces_the_start_and_gets_the_same_flags() -> None:
    spec = pod(podTemplate={"spec": {"containers": [{"name": "triton", "command": ["/opt/start"]}]}})
    assert spec["containers"][0]["command"] == ["/opt/start"]
    assert spec["containers"][0]["args"] == triton()["args"]


@pytest.mark.parametrize("facts", [COPY, MOUNT], ids=lambda facts: facts.delivery)
def test_the_server_can_run_busybox_and_not_change_it(facts: Facts) -> None:
    spec = pod(facts)
    program = Path(spec["containers"][0]["command"][0])
    (mount,) = (m for m in spec["containers"][0]["volumeMounts"] if m["mountPath"] == str(program.parent))
    assert mount["readOnly"]
    assert {"name": mount["name"], "emptyDir": {}} in spec["volumes"]
    assert spec["initContainers"][0]["command"][-1] == str(program)


def test_pod_template_cannot_remove_the_labels_of_selectors() -> None:
    labels = {names.LABEL_MODEL: "other", names.LABEL_MANAGED_BY: "helm", "team": "vision"}
    annotations = {names.ANNOTATION_TEMPLATE: "forged", "a": "b"}
    template = deployment(podTemplate={"metadata": {"labels": labels, "annotations": annotations}})["spec"]["template"]
    assert template["metadata"]["labels"] == {**names.labels(gen.NAME), "team": "vision"}
    assert template["metadata"]["annotations"][names.ANNOTATION_TEMPLATE] != "forged"
    assert template["metadata"]["annotations"]["a"] == "b"


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": "x"},
        {"containers": [{"name": {"odd": 1}}]},
        {"containers": [{"name": ["x"]}, 3]},
        {"containers": [{"name": "triton", "env": 3}]},
        {"volumes": {"a": 1}},
        {"nodeSelector": "x"},
        {"initContainers": [None]},
    ],
)
def test_renders_an_invalid_pod_template_unchanged(spec: dict[str, Any]) -> None:
    assert pod(podTemplate={"spec": spec}) is not None


MERGES: list[tuple[str, Any, Any, Any]] = [
    ("", {"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}),
    ("", {"a": 1}, {"a": None, "b": None}, {}),
    ("", {"a": {"x": 1}}, {"a": {"y": 2}}, {"a": {"x": 1, "y": 2}}),
    ("args", ["a"], ["b"], ["b"]),
    ("tolerations", [{"key": "a"}], [{"key": "b"}], [{"key": "b"}]),
    ("env", [{"name": "a", "value": "1"}], [{"name": "b"}, {"name": "a", "value": "2"}],
     [{"name": "a", "value": "2"}, {"name": "b"}]),
    ("volumeMounts", [{"name": "x", "mountPath": "/a"}], [{"name": "y", "mountPath": "/a"}],
     [{"name": "y", "mountPath": "/a"}]),
    ("containers", [{"name": "a", "ports": [{"containerPort": 1}]}], [{"name": "a", "ports": [{"containerPort": 2}]}],
     [{"name": "a", "ports": [{"containerPort": 1}, {"containerPort": 2}]}]),
    ("env", [{"name": "a"}], [{"value": "nameless"}], [{"value": "nameless"}]),
    # kubectl patch loses one of two ports that differ only in the protocol (kubernetes/kubernetes#39188).
    ("ports", [{"containerPort": 1, "protocol": "TCP"}],
     [{"containerPort": 1, "name": "a"}, {"containerPort": 1, "protocol": "UDP"}, {"containerPort": 2},
      {"containerPort": 2, "protocol": "UDP"}],
     [{"containerPort": 1, "protocol": "TCP", "name": "a"}, {"containerPort": 1, "protocol": "UDP"},
      {"containerPort": 2}, {"containerPort": 2, "protocol": "UDP"}]),
]  # fmt: skip


@pytest.mark.parametrize(("field", "base", "patch", "expected"), MERGES)
def test_merges_by_the_keys_of_kubernetes(field: str, base: Any, patch: Any, expected: Any) -> None:
    originals = copy.deepcopy((base, patch))
    assert merge(base, patch, field) == expected
    assert (base, patch) == originals


# Disruption


@pytest.mark.parametrize(("replicas", "budgets"), [(0, 0), (1, 0), (2, 1), (9, 1)])
def test_a_single_server_has_no_disruption_budget(replicas: int, budgets: int) -> None:
    disruption_budgets = of_kind("PodDisruptionBudget", gen.model(), Facts("operator:1", "Copy", replicas))
    assert len(disruption_budgets) == budgets
    for budget in disruption_budgets:
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


# Facts


def deployed(model: TritonModel, facts: Facts, replicas: int = 1) -> dict[str, Any]:
    return gen.live(of_kind("Deployment", model, facts)[0], gen.put("spec.replicas", replicas))


def test_uses_the_defaults_without_a_deployment() -> None:
    assert choose(gen.model(), None, MOUNT) == MOUNT
    assert choose(gen.model(replicas=3), None, COPY).replicas == 3


def test_a_new_tools_image_alone_does_not_change_a_live_deployment() -> None:
    model = gen.model()
    chosen = choose(model, deployed(model, COPY), Facts("operator:2", "Copy"))
    assert chosen == COPY
    assert of_kind("Deployment", model, chosen) == of_kind("Deployment", model, COPY)


def test_another_change_takes_the_new_tools_image() -> None:
    chosen = choose(gen.model(server={"image": "triton:2"}), deployed(gen.model(), COPY), Facts("operator:2", "Copy"))
    assert chosen.tools_image == "operator:2"


def test_scaling_does_not_take_the_new_tools_image() -> None:
    chosen = choose(gen.model(replicas=7), deployed(gen.model(replicas=2), COPY, 2), Facts("operator:2", "Copy"))
    assert chosen == Facts("operator:1", "Copy", 7)


@pytest.mark.parametrize(("delivery", "fresh"), [("Copy", MOUNT), ("ImageVolume", COPY)])
def test_auto_keeps_the_delivery_when_pods_are_replaced(delivery: Any, fresh: Facts) -> None:
    live = deployed(gen.model(), Facts("operator:1", delivery))
    assert choose(gen.model(), live, fresh).delivery == delivery
    assert choose(gen.model(server={"image": "triton:2"}), live, fresh).delivery == delivery


def test_an_explicit_delivery_overrides_the_kept_one() -> None:
    model = gen.model(modelImage={"reference": gen.IMAGE, "delivery": "ImageVolume"})
    assert choose(model, deployed(gen.model(), COPY), COPY).delivery == "ImageVolume"
    assert choose(model, None, COPY).delivery == "ImageVolume"


def test_ignores_invalid_annotations_of_the_live_deployment() -> None:
    live = deployed(gen.model(), COPY)
    live["metadata"]["annotations"][names.ANNOTATION_DELIVERY] = "Pigeon"
    assert choose(gen.model(), live, MOUNT).delivery == "ImageVolume"


def test_keeps_the_replicas_that_another_client_sets() -> None:
    assert choose(gen.model(), deployed(gen.model(), COPY, 5), COPY).replicas == 5
    assert choose(gen.model(replicas=2), deployed(gen.model(), COPY, 5), COPY).replicas == 2


def test_template_hash_depends_on_the_template_only() -> None:
    def hashed(facts: Facts = COPY, **spec: Any) -> str:
        template = pod_template(gen.model(**spec), facts)
        return str(template["metadata"]["annotations"][names.ANNOTATION_TEMPLATE])

    assert hashed() == hashed(replicas=5)
    assert hashed() == hashed(disruption={"maxUnavailable": 2})
    different = [
        hashed(), hashed(MOUNT), hashed(Facts("operator:2", "Copy")), hashed(entrypoint="x"), hashed(server=GPU),
        hashed(podTemplate={"metadata": {"labels": {"a": "b"}}}), hashed(rollout={"drainSeconds": 1}),
    ]  # fmt: skip
    assert len(set(different)) == len(different)


def test_the_settings_of_a_model_fit_into_an_argument() -> None:
    def settings(count: int) -> list[dict[str, Any]]:
        return [{"name": "a", "config": {"parameters": {"p": {"string_value": "$" * count}}}}]

    check = next(c for c in pod(models=settings(16_000))["initContainers"] if c["name"] == names.CONTAINER_CHECK)
    assert max(map(len, check["command"])) < 128 << 10
    with pytest.raises(ValueError, match="more than 96 KiB"):
        gen.model(models=settings(32_000))
