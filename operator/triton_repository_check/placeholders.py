"""Placeholders of a template that nobody filled: `${…}` of fill_template.py and envsubst, `{{ .Values.… }}` of Helm."""

from __future__ import annotations

import re
from collections.abc import Collection

from triton_repository_check.findings import Finding, Severity
from triton_repository_check.places import Node, strings
from triton_repository_check.text import one_line

CODES = {
    "TR129": "config.pbtxt: placeholders of a template are left",
}

PATTERN = re.compile(r"\$\{[A-Za-z_][\w.:-]*\}|\{\{-?[ \t]*[.$][\w.$ \t|\"-]*\}\}")
FATAL = frozenset({"name", "backend", "platform", "runtime", "default_model_filename", "model_name", "label_filename"})
"""Fields with which Triton can't work when they contain a placeholder. A tensor's name only is another name."""
_BARE = re.compile(r"(?<!\$)\$[A-Z_][A-Z0-9_]*\b|\{\{[^{}:\n]*\}\}")
"""`$NAME` and any `{{…}}`, which are placeholders only where the text of a value can't have them."""
_COMMENT = re.compile(r"#[^\n]*")
_STRING = re.compile(r"""\"(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?""")
_MAX_LISTED = 16


def unfilled(text: str) -> list[str]:
    """Returns the placeholders of a configuration that isn't valid, without those in comments."""
    text = _COMMENT.sub("", text)
    return list(dict.fromkeys((*PATTERN.findall(text), *_BARE.findall(_STRING.sub("", text)))))


def names(text: str, *, bare: bool = False) -> list[str]:
    """Returns the placeholders of a value; with `bare` also `$NAME`, for values that can't have a dollar sign."""
    return PATTERN.findall(text) or (_BARE.findall(text) if bare else [])


def of_values(where: Node) -> tuple[tuple[str, Node], ...]:
    """Returns the values of a configuration that have placeholders: the field's name and the position."""
    return tuple((path[-1], node) for path, node in strings(where) if names(node.text, bare=path[-1] in FATAL))


def finding(file: str, severity: Severity, names: Collection[str], place: Node) -> Finding:
    """TR129: returns the one finding about all placeholders of a file."""
    text = ", ".join([one_line(name[:100]) for name in names][:_MAX_LISTED])
    text += f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    message = f"placeholders of a template are left: {text}"
    return Finding("TR129", severity, *place.within(file), message, "fill the template")
