"""Selects the choices for rendering so that an upgrade of the operator restarts no pods."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from triton_operator.api import names
from triton_operator.api.types import TritonModel

from . import in_place, load_models
from .choices import LOAD_MODELS, REFERENCE, Choices, Delivery, Field
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
    - `replace_servers`: the field of which a change must replace the servers, and why; "" if none must.

    If only such a field has changed, the template keeps its old value until `switched` changes it.
    """
    recorded = (live or {}).get("metadata", {}).get("annotations", {})
    requested, kept = model.spec.model_image.delivery, recorded.get(names.ANNOTATION_DELIVERY)
    if requested != "Auto":
        delivery: Delivery = requested
    elif model.is_in_place:
        delivery = "Copy"
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
    field, template = _only_change(model, recorded, delivery)
    obstacle = _obstacle(model, field)
    why = replace_servers or (f"{field}: {obstacle}" if obstacle else "")
    if why:
        # The servers may have changed since they began with the template that the spec has now.
        again = with_hash(rendered, digest([current])) if current == recorded.get(names.ANNOTATION_TEMPLATE) else None
        return replace(same, template=again, rollout=why)
    if template is not None and field == LOAD_MODELS:
        return replace(same, template=template, load_models=load_models.listed(template["spec"]), only=field)
    if template is not None:
        return replace(same, template=template, reference=in_place.reference(template["metadata"]), only=field)
    if current == recorded.get(names.ANNOTATION_TEMPLATE):
        return same
    if recorded.get(names.ANNOTATION_SPEC) == spec_hash(model, delivery):
        template = unpack(recorded.get(names.ANNOTATION_POD_TEMPLATE, ""))
        if template is not None:
            return replace(same, template=template, newer_template=content(template) != content(rendered))
    return replace(same, tools_image=defaults.tools_image)


def switched(model: TritonModel, choices: Choices) -> Choices:
    """Returns `choices` with the changed field of the spec in the template: all servers have it."""
    if not choices.only or choices.template is None:
        return choices
    if choices.only == LOAD_MODELS:
        template = load_models.with_models(choices.template, model.spec.server.load_models)
    else:
        template = in_place.with_reference(choices.template, model.spec.model_image.reference)
    return replace(choices, template=template, load_models=None, reference=None)


def _only_change(
    model: TritonModel, recorded: Mapping[str, Any], delivery: Delivery
) -> tuple[Field, dict[str, Any] | None]:
    """Returns the only field in which the kept template and the spec differ, if running servers can change it.

    Returns the template, too; "" and None otherwise.
    """
    template = unpack(recorded.get(names.ANNOTATION_POD_TEMPLATE, "")) if model.is_explicit else None
    if template is None:
        return "", None
    known = recorded.get(names.ANNOTATION_SPEC)
    models, reference = load_models.listed(template["spec"]), in_place.reference(template["metadata"])
    if models and models != tuple(model.spec.server.load_models) and known == spec_hash(model, delivery, models):
        return LOAD_MODELS, template
    changed = model.is_in_place and reference and reference != model.spec.model_image.reference
    if changed and known == spec_hash(model, delivery, reference=reference):
        return REFERENCE, template
    return "", None


def _obstacle(model: TritonModel, field: Field) -> str:
    """Returns why the field of running servers can't change; "" if it can."""
    if field == REFERENCE:
        return in_place.obstacle(model)
    if field == LOAD_MODELS and not model.spec.entrypoint:
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
