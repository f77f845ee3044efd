"""Selects the facts for rendering so that an upgrade of the operator restarts no pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from triton_operator.api import names
from triton_operator.api.types import TritonModel

from .deployment import pod_template
from .facts import Delivery, Facts, KeptTemplate, NewTemplate
from .kept_template import content, digest, seal, spec_hash, unpack, with_annotation


def choose(
    model: TritonModel,
    live: Mapping[str, Any] | None,
    defaults: Facts,
    *,
    agrees: Callable[[Mapping[str, Any], Mapping[str, Any]], bool] = lambda *_: True,
    replace_servers: bool = False,
    memory: str = "",
) -> Facts:
    """Returns the facts for `model`: the ones recorded on the live Deployment, otherwise `defaults`.

    So neither a new version of the operator nor a change of the nodes restarts a server. The Deployment keeps its pod
    template until a field of the spec that concerns pods changes; then it gets the new tools image too.

    - `defaults`: the cluster's current capabilities and the state of the model. `defaults.replicas` is the last known
      number of servers.
    - `agrees`: whether a kept template is the one in the spec of the live Deployment. Without the label with its hash,
      this shows who wrote it: a user who may write `deployments/status` can write the annotation, but not the spec.
    - `replace_servers`: whether a change of spec.server.loadModels must replace the servers.
    - `memory`: a new value of ANNOTATION_MEMORY, which replaces the servers and changes nothing else of them; "" for
      that of the live pod template.
    """
    annotations = _annotations(live)
    delivery = _delivery(model, annotations, defaults.delivery)
    replicas, before = model.spec.replicas, defaults.replicas
    replaced = models_hash(model) if replace_servers else _annotation(live, names.ANNOTATION_REPLACED)
    facts = replace(
        defaults,
        tools_image=_tools_image((live or {}).get("spec", {}).get("template")) or defaults.tools_image,
        delivery=delivery,
        replicas=replicas if replicas is not None else _replicas(live, before),
        initial_replicas=before if replicas is None and live is None and before > 1 else None,
        template=NewTemplate(replaced, memory or _annotation(live, names.ANNOTATION_MEMORY)),
    )
    template = pod_template(model, facts)
    if _hash(template) == annotations.get(names.ANNOTATION_TEMPLATE):
        return facts
    if not replace_servers and annotations.get(names.ANNOTATION_SPEC) == spec_hash(model, delivery):
        old = _old_template(annotations, live, agrees)
        if old is not None:
            if memory:
                old = with_annotation(old, names.ANNOTATION_MEMORY, memory)
            # Admission may have rewritten the image in the live one.
            facts = replace(facts, tools_image=_tools_image(old) or facts.tools_image)
            template = pod_template(model, facts)
            if _hash(template) == _hash(old) or (memory and content(template) == content(old)):
                return facts
            return replace(facts, template=KeptTemplate(old, content(old) != content(template), replaced))
    return replace(facts, tools_image=defaults.tools_image)


def runs(model: TritonModel, live: Mapping[str, Any] | None) -> bool:
    """Returns whether the live Deployment was made from the same fields of the spec that concern pods."""
    annotations = _annotations(live)
    recorded = annotations.get(names.ANNOTATION_SPEC)
    return recorded is not None and recorded == spec_hash(model, _delivery(model, annotations, "Copy"))


def _annotations(live: Mapping[str, Any] | None) -> Mapping[str, Any]:
    annotations: Mapping[str, Any] = (live or {}).get("metadata", {}).get("annotations", {})
    return annotations


def _delivery(model: TritonModel, annotations: Mapping[str, Any], default: Delivery) -> Delivery:
    setting, recorded = model.spec.model_image.delivery, annotations.get(names.ANNOTATION_DELIVERY)
    if setting != "Auto":
        return setting
    return cast(Delivery, recorded) if recorded in ("Copy", "ImageVolume") else default


def _hash(template: Mapping[str, Any]) -> str:
    """Returns the hash in the pod template."""
    return str(template["metadata"]["annotations"][names.ANNOTATION_TEMPLATE])


def _old_template(
    annotations: Mapping[str, Any],
    live: Mapping[str, Any] | None,
    agrees: Callable[[Mapping[str, Any], Mapping[str, Any]], bool],
) -> dict[str, Any] | None:
    """Returns the pod template that is kept on the live Deployment; None without one that the operator wrote."""
    template = unpack(annotations.get(names.ANNOTATION_POD_TEMPLATE, ""))
    if template is None or live is None:
        return None
    label = live["metadata"].get("labels", {}).get(names.LABEL_KEPT)
    # Earlier versions of the operator set no label.
    is_ours = agrees(template, live) if label is None else label == seal(template)
    return template if is_ours else None


def _tools_image(template: Mapping[str, Any] | None) -> str:
    """Returns the operator's image in the pod template; "" if it has none."""
    pod = (template or {}).get("spec", {})
    return next(
        (str(c.get("image", "")) for c in pod.get("initContainers", ()) if c.get("name") == names.CONTAINER_TOOLS), ""
    )


def _replicas(live: Mapping[str, Any] | None, before: int) -> int:
    return before if live is None else int(live.get("spec", {}).get("replicas", 1))


def models_hash(model: TritonModel) -> str:
    """Returns the value of ANNOTATION_REPLACED for the models of spec.server.loadModels."""
    return digest(model.spec.server.load_models)


def memory_of(live: Mapping[str, Any] | None) -> str:
    """Returns the value of ANNOTATION_MEMORY in the live pod template; "" if it has none."""
    return _annotation(live, names.ANNOTATION_MEMORY)


def _annotation(live: Mapping[str, Any] | None, name: str) -> str:
    """Returns the value of an annotation of the live pod template; "" if it has none."""
    metadata = (live or {}).get("spec", {}).get("template", {}).get("metadata", {})
    return str((metadata.get("annotations") or {}).get(name, ""))
