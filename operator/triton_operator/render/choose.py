"""Selects the choices for rendering so that an upgrade of the operator restarts no pods."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from triton_operator.api import names
from triton_operator.api.types import TritonModel

from . import load_models
from .choices import Choices, Delivery
from .deployment import pod_template
from .kept_template import content, digest, spec_hash, unpack, with_hash


def choose(
    model: TritonModel,
    live: Mapping[str, Any] | None,
    defaults: Choices,
    pods: Iterable[Mapping[str, Any]] = (),
    accounts: Collection[str] = (),
    *,
    replace_servers: str = "",
) -> Choices:
    """Returns the choices for `model`: the ones recorded on the live Deployment, otherwise `defaults`.

    So neither a new version of the operator nor a change of the nodes restarts a server. The Deployment keeps its pod
    template until a field of the spec that concerns pods changes; then it gets the new tools image too.

    - `defaults`: the cluster's current capabilities and the state of the model. `defaults.replicas` is the last known
      number of servers.
    - `pods`: the servers.
    - `accounts`: names of the ServiceAccounts that `model` owns.
    - `replace_servers`: why a change of spec.server.loadModels must replace the servers; "" if it needn't.

    If only spec.server.loadModels has changed, the template keeps the old models until `switched` changes them.
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
    current = rendered["metadata"]["annotations"][names.ANNOTATION_TEMPLATE]
    if (template := _with_other_models(model, recorded, delivery)) is not None:
        why = replace_servers or _obstacle(model)
        if not why:
            models = load_models.listed(template["spec"])
            return replace(same, template=template, load_models=models, only_models=True)
        # The servers may have begun with the models that the spec has now.
        renamed = with_hash(rendered, digest([current])) if current == recorded.get(names.ANNOTATION_TEMPLATE) else None
        return replace(same, template=renamed, rollout=why)
    if current == recorded.get(names.ANNOTATION_TEMPLATE):
        return same
    if recorded.get(names.ANNOTATION_SPEC) == spec_hash(model, delivery):
        template = unpack(recorded.get(names.ANNOTATION_POD_TEMPLATE, ""))
        if template is not None:
            return replace(same, template=template, newer_template=content(template) != content(rendered))
    return replace(same, tools_image=defaults.tools_image)


def switched(model: TritonModel, choices: Choices) -> Choices:
    """Returns `choices` with the models of the spec in the template: all servers have them."""
    if not choices.only_models or choices.template is None:
        return choices
    template = load_models.with_models(choices.template, model.spec.server.load_models)
    return replace(choices, template=template, load_models=None)


def _with_other_models(model: TritonModel, recorded: Mapping[str, Any], delivery: Delivery) -> dict[str, Any] | None:
    """Returns the kept template if the spec has changed in spec.server.loadModels only; None otherwise."""
    template = unpack(recorded.get(names.ANNOTATION_POD_TEMPLATE, "")) if model.is_explicit else None
    models = load_models.listed(template["spec"]) if template else ()
    if not models or models == tuple(model.spec.server.load_models):
        return None
    if recorded.get(names.ANNOTATION_SPEC) != spec_hash(model, delivery, models):
        return None
    return template


def _obstacle(model: TritonModel) -> str:
    """Returns why the models of running servers can't change; "" if they can."""
    if not model.spec.entrypoint:
        # The readiness probe then asks for all models, and fails while one is being loaded.
        return "without spec.entrypoint a server isn't ready while it loads a model"
    return ""


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
