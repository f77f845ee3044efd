"""Placeholders of a template that nobody filled: `${…}` of fill_template.py and envsubst, `{{ .Values.… }}` of Helm."""

from __future__ import annotations

import re
from collections.abc import Collection

from triton_repository_check.findings import Finding, Severity
from triton_repository_check.places import Node
from triton_repository_check.text import one_line

PATTERN = re.compile(r"\$\{[A-Za-z_][\w.:-]*\}|\{\{-?[ \t]*[.$][\w.$ \t|\"-]*\}\}")
_COMMENT = re.compile(r"#[^\n]*")
_MAX_LISTED = 16


def unfilled(text: str) -> list[str]:
    """Returns the placeholders of a configuration that isn't valid, without those in comments."""
    return list(dict.fromkeys(PATTERN.findall(_COMMENT.sub("", text))))


def finding(file: str, severity: Severity, names: Collection[str], place: Node) -> Finding:
    """TR129: returns the one finding about all placeholders of a file."""
    text = ", ".join([one_line(name[:100]) for name in names][:_MAX_LISTED])
    text += f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    message = f"placeholders of a template are left: {text}"
    return Finding("TR129", severity, *place.within(file), message, "fill the template")
