"""What happens when a list can't be read to its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support import gen
from triton_operator.api import kinds
from triton_operator.api.kinds import Kind
from triton_operator.cluster.errors import ApiError
from triton_operator.cluster.store import Store
from triton_operator.runtime.listing import Listing

KEY = f"{gen.NAMESPACE}/{gen.NAME}"
ConfigMap = dict[str, Any]


def config_map(name: str, *modifiers: gen.Modifier) -> ConfigMap:
    server = {"modelControl": "explicit", "loadModels": ["a"]}
    obj = gen.child("ConfigMap", entrypoint="a", server=server)
    return gen.modified(obj, gen.put("metadata.name", name), gen.put("metadata.uid", f"uid-of-{name}"), *modifiers)


class Pages:
    """An API server with ConfigMaps. `errors`: those that the next lists of them end with, after the first object."""

    def __init__(self, *errors: ApiError, unlabelled: tuple[ConfigMap, ...] = ()) -> None:
        self.errors, self.unlabelled, self.read = list(errors), unlabelled, list[str]()

    def list(self, kind: Kind, _: str | None, selector: str = "", *, metadata: bool = False) -> Iterator[Any]:
        if kind == kinds.TRITON_MODEL:
            yield gen.raw()
        if kind != kinds.CONFIG_MAP:
            return
        if metadata:
            yield from self.unlabelled
            return
        yield config_map("tritonmodel-detection")
        if self.errors:
            raise self.errors.pop(0)

    def get(self, _: Kind, __: str, name: str) -> ConfigMap:
        self.read.append(name)
        return next(child for child in self.unlabelled if child["metadata"]["name"] == name)


def listed(api: Any) -> tuple[Listing, Store]:
    store = Store()
    listing = Listing(api, store, ())
    listing.list_all()
    return listing, store


def test_a_list_whose_state_is_compacted_begins_again() -> None:
    """etcd keeps the state of the first page for five minutes."""
    expired = ApiError(410, "Expired", "the provided continue parameter is too old")
    listing, store = listed(Pages(expired, expired))
    assert listing.refused == {}
    assert len(store.of_kind(KEY, "ConfigMap")) == 1
    with pytest.raises(ApiError):
        listed(Pages(expired, expired, expired))


def test_only_a_refusal_is_a_missing_permission() -> None:
    listing, _ = listed(Pages(ApiError(403, "Forbidden", "no")))
    assert listing.refused == {(kinds.CONFIG_MAP, None): "no"}
    for code in (400, 401, 404, 406, 500):
        with pytest.raises(ApiError):
            listed(Pages(ApiError(code, "", "")))


def test_reads_only_the_metadata_of_what_it_will_delete() -> None:
    """A tenant may create thousands of objects with an owner and without the label."""
    others = tuple(config_map(f"mine-{number}") for number in range(200))
    api = Pages(unlabelled=(*others, config_map("tritonmodel-detection")))
    _, store = listed(api)
    assert api.read == ["tritonmodel-detection"]
    assert {obj["metadata"]["uid"] for obj in store.children(KEY, gen.UID)} == {
        f"uid-of-{name}" for name in ("tritonmodel-detection", *(f"mine-{number}" for number in range(200)))
    }
