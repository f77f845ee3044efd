"""Selects the choices for rendering so that an upgrade of the operator restarts no pods."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from triton_operator.api import names
from triton_operator.api.types import TritonModel

from .choices import Choices, Delivery
from .deployment import pod_template
from .kept_template import spec_hash, unpack


def choose(
    model: TritonModel,
    live: Mapping[str, Any] | None,
    defaults: Choices,
    pods: Iterable[Mapping[str, Any]] = (),
    accounts: Collection[str] = (),
) -> Choices:
    """Returns the choices for `model`: the ones recorded on the live Deployment, otherwise `defaults`.

    So neither a new version of the operator nor a change of the nodes restarts a server. The Deployment keeps its pod
    template until a field of the spec that concerns pods changes; then it gets the new tools image too.

    - `defaults`: the cluster's current capabilities and the state of the model. `defaults.replicas` is the last known
      number of servers.
    - `pods`: the servers.
    - `accounts`: names of the ServiceAccounts that `model` owns.
    """
    recorded = (live or {}).get("metadata", {}).get("annotations", {})
    requested, kept = model.spec.model_image.delivery, recorded.get(names.ANNOTATION_DELIVERY)
    if requested != "Auto":
        delivery: Delivery = requested
    else:
        delivery = cast(Delivery, kept) if kept in ("Copy", "ImageVolume") else defaults.delivery
    wanted, before = model.spec.replicas, defaults.replicas
    same = replace(
        defaults,
        tools_image=recorded.get(names.ANNOTATION_TOOLS_IMAGE, defaults.tools_image),
        delivery=delivery,
        replicas=wanted if wanted is not None else _replicas(live, before),
        initial_replicas=before if wanted is None and live is None and before > 1 else None,
        former_selector=_selects_by(names.former_selector(model.name), live),
    )
    rendered = pod_template(model, same)
    same = replace(same, former_account=_has_former_account(model, live, rendered, pods, accounts))
    if rendered["metadata"]["annotations"][names.ANNOTATION_TEMPLATE] == recorded.get(names.ANNOTATION_TEMPLATE):
        return same
    if recorded.get(names.ANNOTATION_SPEC) == spec_hash(model, delivery):
        template = unpack(recorded.get(names.ANNOTATION_POD_TEMPLATE, ""))
        if template is not None:
            return replace(same, template=template, newer_template=True)
    return replace(same, tools_image=defaults.tools_image)


def _replicas(live: Mapping[str, Any] | None, before: int) -> int:
    return before if live is None else int(live.get("spec", {}).get("replicas", 1))


def _selects_by(labels: Mapping[str, str], live: Mapping[str, Any] | None) -> bool:
    return bool((live or {}).get("spec", {}).get("selector", {}).get("matchLabels") == labels)


def _has_former_account(
    model: TritonModel,
    live: Mapping[str, Any] | None,
    rendered: Mapping[str, Any],
    pods: Iterable[Mapping[str, Any]],
    accounts: Collection[str],
) -> bool:
    """Returns whether `model` still needs the ServiceAccount of earlier versions.

    This is so if its Deployment or a pod uses the account, unless the user's podTemplate names an account that `model`
    doesn't own.
    """
    template = (live or {}).get("spec", {}).get("template", {})
    in_use = any(one.get("spec", {}).get("serviceAccountName") == model.name for one in (template, *pods))
    named_by_user = rendered["spec"].get("serviceAccountName") == model.name
    return in_use and (model.name in accounts or not named_by_user)
