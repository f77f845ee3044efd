"""The ConfigMap with the lists of models, one for each pod template (load_models.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from triton_operator.api import kinds
from triton_operator.api.types import TritonModel

from .child_type import Child
from .common import obj
from .deployment import chosen_template
from .facts import Facts, Models
from .load_models import FIRST_KEY, key_of, name

_OTHERS = "others"


def key(model: TritonModel, facts: Facts) -> str:
    """Returns the key of the list for the chosen pod template; "" if that has none."""
    return key_of(chosen_template(model, facts)["spec"])


def config_maps(model: TritonModel, facts: Facts) -> list[dict[str, Any]]:
    """Returns the ConfigMap with the lists; none if no pod needs one."""
    lists, current = dict(facts.lists), key(model, facts)
    if current:
        lists.setdefault(current, Models(tuple(model.spec.server.load_models)))
    if not lists:
        return []
    data = {
        entry: _lines(models)
        for at, both in sorted(lists.items())
        for entry, models in ((at, both.listed), (_others(at), both.others))
    }
    return [obj(model, kinds.CONFIG_MAP, name(model), data=data)]


def read(config_map: Mapping[str, Any] | None) -> dict[str, Models]:
    """Returns the lists in the ConfigMap by their keys; none without one."""
    data: Mapping[str, str] = (config_map or {}).get("data") or {}
    others = {_others(at) for at in data}
    return {
        at: Models(*(tuple(data.get(entry, "").split()) for entry in (at, _others(at))))
        for at in data
        if at not in others
    }


def _others(at: str) -> str:
    """Returns the key of the models that servers may have beside those at the key `at`."""
    return _OTHERS if at == FIRST_KEY else f"{at}.{_OTHERS}"


def _models(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _lines(models: Iterable[str]) -> str:
    return "".join(f"{model}\n" for model in models)


CHILD = Child(kinds.CONFIG_MAP, config_maps, needed=lambda model: model.is_explicit)
