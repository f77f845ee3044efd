"""YAML as kubectl reads it.

kubectl and PyYAML differ in what is text: to kubectl `1e3` and `0o17` are numbers, `y` is true, and `12:30` and a date
are text.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import yaml
from yaml.constructor import ConstructorError

_TAG = "tag:yaml.org,2002:"
_BOOLEANS = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_RESOLVERS = (
    ("bool", "|".join(_BOOLEANS), "yYnNtTfFoO"),
    ("int", r"[-+]?(?:0[bB][01_]+|0[xX][0-9a-fA-F_]+|0[oO]?[0-7_]+|0|[1-9][0-9_]*)", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+."),
)  # fmt: skip


class Written(float):
    """A number that isn't whole, or not written so, with its text in the file: 1e3 is meant as text more often."""

    def __new__(cls, text: str) -> Written:
        number = super().__new__(cls, text)
        number.text = text
        return number

    text: str


class KubectlLoader(yaml.SafeLoader):
    """Reads YAML into JSON values as kubectl does. Raises yaml.YAMLError for what JSON doesn't have."""

    yaml_implicit_resolvers = {
        first: [(tag, form) for tag, form in forms if tag in (f"{_TAG}null", f"{_TAG}merge")]
        for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Returns a map with text for keys, as JSON needs it."""
        if not isinstance(node, yaml.MappingNode):
            raise ConstructorError(None, None, "a map is expected", node.start_mark)
        self.flatten_mapping(node)
        return {_key(self.construct_object(key, deep=True), key): self.construct_object(value, deep=deep)
                for key, value in node.value}  # fmt: skip

    def _bool(self, node: yaml.ScalarNode) -> bool:
        text = str(self.construct_scalar(node))
        if text not in _BOOLEANS:
            raise ConstructorError(None, None, f"{text[:40]!r} is neither true nor false", node.start_mark)
        return _BOOLEANS[text]

    def _int(self, node: yaml.ScalarNode) -> float | str:
        text = str(self.construct_scalar(node)).replace("_", "")
        number = int(re.sub(r"^([-+]?)0(?=[0-7])", r"\g<1>0o", text), 0)
        if -(2**63) <= number < 2**64:
            return number
        return self._float(node) if text.lstrip("-+").isdecimal() else text

    def _float(self, node: yaml.ScalarNode) -> float | str:
        text = str(self.construct_scalar(node)).replace("_", "")
        if text.lstrip("-+.")[:1].isalpha():
            raise ConstructorError(None, None, f"{text} is no number in JSON: quote it", node.start_mark)
        number = Written(text)
        return number if math.isfinite(number) else text


def _key(key: Any, node: yaml.Node) -> str:
    """Returns the key of a map as text. Before that, Python takes 1 and true for the same one."""
    if isinstance(key, str):
        return key
    if not isinstance(key, int | float):
        raise ConstructorError(None, None, "a key must be text or a number", node.start_mark)
    return json.dumps(int(key) if key == int(key) and not isinstance(key, bool) else key)


class PlainDumper(yaml.SafeDumper):
    """Writes repeated values in full, without anchors and aliases, and text in a form that kubectl reads as text."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True


PlainDumper.add_representer(Written, PlainDumper.represent_float)
for _name, _form, _first in _RESOLVERS:
    for _kind in (KubectlLoader, PlainDumper):
        _kind.add_implicit_resolver(f"{_TAG}{_name}", re.compile(f"^(?:{_form})$"), list(_first))
for _name, _construct in (
    ("bool", KubectlLoader._bool),
    ("int", KubectlLoader._int),
    ("float", KubectlLoader._float),
    ("timestamp", KubectlLoader.construct_yaml_str),
    *((name, KubectlLoader.construct_undefined) for name in ("binary", "omap", "pairs", "set")),
):
    KubectlLoader.add_constructor(f"{_TAG}{_name}", _construct)
