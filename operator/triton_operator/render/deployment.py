"""The Deployment of the servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.types import Omittable, TritonModel

from . import answers, exporters, load_models
from .child_type import Child
from .common import obj
from .delivery import init_containers, volumes
from .facts import Facts, KeptTemplate, NewTemplate
from .kept_template import digest, pack, seal, spec_hash, with_hash
from .merge import merge, without
from .server import container
from .sizes import shared_memory, surge

_SET_BY_OPENSHIFT: tuple[Omittable, ...] = (
    "spec.securityContext.fsGroup",
    "spec.securityContext.runAsGroup",
    "spec.securityContext.runAsUser",
)
_MAY_BE_LOST = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
"""Without it, cluster-autoscaler keeps a node because of the pod's volumes, even if nothing else runs there."""
_EXIT_MARGIN_SECONDS = 5
_PULL_SECONDS = 1200
"""Time to pull images of up to 15 GB. With the startup time, it is the progress deadline of a rollout."""


def deployment(model: TritonModel, facts: Facts) -> dict[str, Any]:
    """Returns the Deployment.

    It has `spec.replicas` only if the TritonModel has it or the Deployment is new. Otherwise the field belongs to the
    autoscaler or another client that scales it.
    """
    spec = model.spec
    template = chosen_template(model, facts)
    packed, group = pack(template), facts.group
    number = spec.replicas if spec.replicas is not None else facts.initial_replicas
    replicas = {"replicas": number} if number is not None else {}
    return obj(
        model,
        kinds.DEPLOYMENT,
        names.deployment(model.name, group),
        annotations={
            names.ANNOTATION_TEMPLATE: template["metadata"]["annotations"][names.ANNOTATION_TEMPLATE],
            names.ANNOTATION_DELIVERY: facts.delivery,
            names.ANNOTATION_SPEC: spec_hash(model, facts.delivery),
            **({names.ANNOTATION_POD_TEMPLATE: packed} if packed else {}),
        },
        labels={**names.of_group(group), **({names.LABEL_KEPT: seal(template)} if packed else {})},
        spec={
            **replicas,
            "selector": {"matchLabels": names.selector(model.name, group)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": surge(spec)},
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": progress_seconds(spec.rollout.startup_seconds),
            "template": template,
        },
    )


def progress_seconds(startup_seconds: int) -> int:
    """Returns the maximum time until a new pod is ready, with the pull of its images."""
    return startup_seconds + _PULL_SECONDS


def template_hash(model: TritonModel, facts: Facts) -> str:
    """Returns the hash of the pod template, which the pods have as an annotation."""
    return str(chosen_template(model, facts)["metadata"]["annotations"][names.ANNOTATION_TEMPLATE])


def chosen_template(model: TritonModel, facts: Facts) -> dict[str, Any]:
    """Returns the pod template that was chosen."""
    chosen = facts.template
    return chosen.template if isinstance(chosen, KeptTemplate) else pod_template(model, facts)


def pod_template(model: TritonModel, facts: Facts) -> dict[str, Any]:
    """Returns a new pod template: the operator's, merged with the user's, and then the labels that selectors need."""
    common, user = model.spec.common_metadata, model.spec.pod_template
    base: dict[str, Any] = {"metadata": {}, "spec": _pod_spec(model, facts)}
    own_volumes = [volume["name"] for volume in base["spec"]["volumes"] if "emptyDir" in volume]
    for path in (*user.omit, *(_SET_BY_OPENSHIFT if facts.cluster.openshift else ())):
        base = without(base, path)
    template: dict[str, Any] = merge(
        base,
        {
            "metadata": {
                "labels": {**common.labels, **user.metadata.labels},
                "annotations": {
                    _MAY_BE_LOST: ",".join(own_volumes),
                    **common.annotations,
                    **user.metadata.annotations,
                },
            },
            "spec": user.spec,
        },
    )
    metadata = template["metadata"]
    metadata["labels"] = {**metadata["labels"], **names.labels_of_pods(model.name, facts.group)}
    if model.spec.rollout.restarted_at:
        metadata["annotations"] = {
            **metadata["annotations"],
            names.ANNOTATION_RESTARTED: model.spec.rollout.restarted_at,
        }
    if isinstance(facts.template, NewTemplate):
        because = {names.ANNOTATION_REPLACED: facts.template.replaced, names.ANNOTATION_MEMORY: facts.template.memory}
        metadata["annotations"] = {**metadata["annotations"], **{key: value for key, value in because.items() if value}}
    return with_hash(template, digest(template))


def _pod_spec(model: TritonModel, facts: Facts) -> dict[str, Any]:
    spec = model.spec
    # The API server refuses two items with the same name.
    secrets = [{"name": name} for name in dict.fromkeys(s.name for s in spec.model_image.pull_secrets)]
    return {
        "serviceAccountName": names.account(model.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": spec.rollout.drain_seconds + spec.rollout.exit_seconds + _EXIT_MARGIN_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "fsGroup": 1000,
            # Otherwise each start of a pod changes the owner of all files of a large volume that the user adds.
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **({"imagePullSecrets": secrets} if secrets else {}),
        # Not every cloud taints its Windows nodes.
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "initContainers": init_containers(model, facts),
        "containers": [container(model, facts), *exporters.containers(model, facts), *answers.containers(model, facts)],
        "volumes": [
            *volumes(model, facts),
            *load_models.volumes(model),
            *exporters.volumes(model),
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory(spec)}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }


def _status(status: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the status without the counts of pods. The operator watches the pods themselves."""
    failures = [c for c in status.get("conditions", []) if c["type"] == "ReplicaFailure"]
    observed = {k: status[k] for k in ("observedGeneration",) if k in status}
    return {**observed, "conditions": failures}


CHILD = Child(
    kinds.DEPLOYMENT,
    lambda model, facts: [deployment(model, facts)],
    always=True,
    of_each_group=True,
    unchecked="check spec.podTemplate, spec.server.env and spec.server.resources, which the operator copies unchanged",
    status=_status,
)
