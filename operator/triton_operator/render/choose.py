"""Selects the choices for rendering, such that an upgrade of the operator restarts no pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from triton_operator.api import names
from triton_operator.api.types import TritonModel

from .choices import Choices, Delivery
from .deployment import pod_template
from .kept_template import spec_hash, unpack


def choose(model: TritonModel, live: Mapping[str, Any] | None, defaults: Choices) -> Choices:
    """The choices for `model`: the ones recorded on the live Deployment, otherwise `defaults`. So neither a new version
    of the operator nor a change of the nodes restarts a server.

    `defaults` has the cluster's current capabilities and what is known about the model. The Deployment keeps its pod
    template until the spec of the pods changes; then it gets the new tools image too.
    """
    recorded = (live or {}).get("metadata", {}).get("annotations", {})
    asked, kept = model.spec.model_image.delivery, recorded.get(names.ANNOTATION_DELIVERY)
    if asked != "Auto":
        delivery: Delivery = asked
    else:
        delivery = cast(Delivery, kept) if kept in ("Copy", "ImageVolume") else defaults.delivery
    replicas = model.spec.replicas if model.spec.replicas is not None else _replicas(live)
    tools_image = recorded.get(names.ANNOTATION_TOOLS_IMAGE, defaults.tools_image)
    same = replace(defaults, tools_image=tools_image, delivery=delivery, replicas=replicas)
    rendered = pod_template(model, same)["metadata"]["annotations"][names.ANNOTATION_TEMPLATE]
    if rendered == recorded.get(names.ANNOTATION_TEMPLATE):
        return same
    if recorded.get(names.ANNOTATION_SPEC) == spec_hash(model, delivery):
        template = unpack(recorded.get(names.ANNOTATION_POD_TEMPLATE, ""))
        if template is not None:
            return replace(same, template=template, newer_template=True)
    return replace(same, tools_image=defaults.tools_image)


def _replicas(live: Mapping[str, Any] | None) -> int:
    return int((live or {}).get("spec", {}).get("replicas", 1))
