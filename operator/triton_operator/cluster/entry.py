"""One stored state of an object, as compressed JSON."""

from __future__ import annotations

import dataclasses
import zlib
from dataclasses import dataclass
from typing import Any

import orjson

from triton_operator.api import kinds, names

from . import shallow
from .shallow import Size, size
from .stored_fields import outline, without_unused

Object = dict[str, Any]
LARGEST = 256 << 10
"""Maximum size of a TritonModel without its status, in bytes of JSON. Of a larger one, only `outline` is stored.
Children may be larger, because one spec field can appear in several of them."""
_LARGEST_STATUS = 512 << 10
_EACH = 1 << 10
"""Memory of a stored object in addition to its JSON, in bytes."""


@dataclass(frozen=True)
class Large:
    """An object of which only `outline` is stored, and the size of its JSON.

    `crowded`: whether the reason is that its namespace uses more than its share of the memory, and not its own size.
    """

    kind: str
    name: str
    size: Size
    crowded: bool


@dataclass(eq=False, slots=True)
class Entry:
    """One state of an object.

    - `body`: its JSON, compressed to a third. Python objects would take about ten times as much memory as the JSON.
    - `controller`: uid of its controller.
    - `large`: its size if only `outline` is stored, otherwise None. `crowded`: see Large.
    - `ended`: whether it is a pod that has ended.
    - `mapped`: cached result of `Store.map_kind`.
    """

    uid: str
    controller: str
    version: int
    body: bytes
    large: Size | None = None
    crowded: bool = False
    ended: bool = False
    mapped: Any = None

    @classmethod
    def of(cls, obj: Object, controller: str) -> Entry:
        metadata, (text, large) = obj["metadata"], _text(obj)
        return cls(
            metadata["uid"],
            controller,
            int(metadata["resourceVersion"]),
            _packed(text),
            large,
            ended=obj["kind"] == kinds.POD.kind and (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed"),
        )

    @property
    def state(self) -> str:
        """Uid and resourceVersion."""
        return f"{self.uid} {self.version}"

    @property
    def memory(self) -> int:
        """Bytes."""
        return len(self.body) + _EACH

    def in_outline(self) -> Entry:
        """This state without the parts that need much memory, such as the models in the status."""
        small = outline(self.object)
        small.get("status", {}).pop("models", None)
        large = self.large or size(self._json)
        return dataclasses.replace(self, body=_packed(_dumps(small)), large=large, crowded=True, mapped=None)

    @property
    def object(self) -> Object:
        obj: Object = orjson.loads(self._json)
        obj["metadata"]["resourceVersion"] = str(self.version)
        return obj

    @property
    def _json(self) -> bytes:
        return zlib.decompress(self.body)


def _packed(text: bytes) -> bytes:
    """Returns compressed JSON. Uncompressed text would keep orjson's buffer, which has at least 8 KiB."""
    return zlib.compress(text, 1)


def _text(obj: Object) -> tuple[bytes, Size | None]:
    """Returns the JSON to store, and the object's size if it is too large, so that only `outline` is stored."""
    large: Size | None = obj.get(shallow.TOO_LARGE)
    if large is None:
        text = _dumps(without_unused(obj))
        if obj["kind"] != names.KIND or _fits(obj, size(text)):
            return text, None
        large = size(text)
    small = outline(obj)
    if not _status(obj).fits(_LARGEST_STATUS):
        small["status"] = {}
    return _dumps(small), large


def _fits(model: Object, total: Size) -> bool:
    if total.fits(LARGEST):
        return True
    rest = size(_dumps(without_unused({**model, "status": {}})))
    return rest.fits(LARGEST) and _status(model).fits(_LARGEST_STATUS)


def _status(model: Object) -> Size:
    return size(shallow.dumps(model.get("status")))


def _dumps(obj: Object) -> bytes:
    """JSON without the resourceVersion, because a change of nothing else needs no reconcile."""
    metadata = {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}
    return shallow.dumps({**obj, "metadata": metadata})
