"""Which choices a rendering takes, so that nobody's pods restart for a reason that is not theirs."""

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
    """The choices for `model`: those recorded on the live Deployment, so that neither a new version of the
    operator nor a change of the nodes restarts a server; else `defaults`.

    `defaults` has what this cluster offers today and what is known of this model. The pod template that this Deployment
    was made with is kept until the spec asks for other pods; a new tools image is taken along then.
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
