"""YAML as kubectl reads it.

kubectl and PyYAML differ in what is text: to kubectl `1e3` and `0o17` are numbers, `y` is true, and `12:30` and a date
are text.
"""

from __future__ import annotations

import json
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


class KubectlLoader(yaml.SafeLoader):
    """Reads YAML into JSON values as kubectl does. Raises yaml.YAMLError for what JSON doesn't have."""

    yaml_implicit_resolvers = {
        first: [(tag, form) for tag, form in forms if tag in (f"{_TAG}null", f"{_TAG}merge")]
        for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Returns a map with text for keys, as JSON needs it."""
        return {
            key if isinstance(key, str) else json.dumps(key): value
            for key, value in super().construct_mapping(node, deep).items()
        }

    def _bool(self, node: yaml.ScalarNode) -> bool:
        return _BOOLEANS[node.value]

    def _int(self, node: yaml.ScalarNode) -> int:
        text = re.sub(r"^([-+]?)0(?=[0-7])", r"\g<1>0o", node.value.replace("_", ""))
        return int(text, 0)

    def _float(self, node: yaml.ScalarNode) -> float:
        text = node.value.replace("_", "")
        if text.lstrip("-+.")[:1].isalpha():
            raise ConstructorError(None, None, f"{text} is no number in JSON: quote it", node.start_mark)
        return float(text)


class PlainDumper(yaml.SafeDumper):
    """Writes repeated values in full, without anchors and aliases, and text in a form that kubectl reads as text."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True


for _name, _form, _first in _RESOLVERS:
    for _kind in (KubectlLoader, PlainDumper):
        _kind.add_implicit_resolver(f"{_TAG}{_name}", re.compile(f"^(?:{_form})$"), list(_first))
for _name, _construct in (("bool", KubectlLoader._bool), ("int", KubectlLoader._int), ("float", KubectlLoader._float)):
    KubectlLoader.add_constructor(f"{_TAG}{_name}", _construct)
