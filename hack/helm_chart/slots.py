"""Puts Helm's template expressions into YAML that is written from objects."""

from __future__ import annotations

import re

import yaml_text

_SLOT = re.compile(r"slot(\d{4})end")
_LINE = re.compile(r"^( *)(?:- )?slot(\d{4})end(?:: null)?$", re.MULTILINE)
_INDENT = re.compile(r"nindent \+(\d+)")


class Slots:
    """The template expressions of one file.

    A slot is a word that stands for an expression while the objects are written as YAML.
    """

    def __init__(self) -> None:
        self._texts: list[str] = []

    def value(self, expression: str, *, trim: bool = False) -> str:
        """Returns a slot for a value, or for a part of a string. `trim` removes the space before it."""
        return self._add(f"{{{{{'-' if trim else ''} {expression} }}}}")

    def lines(self, text: str) -> str:
        """Returns a slot for whole lines. Use it as a key with the value None, or as an item of a list.

        `nindent +N` in the text becomes the indentation of the slot plus N.
        """
        return self._add(text)

    def render(self, *objects: object) -> str:
        """Returns the objects as the text of a template, without a header."""
        written = _escaped(yaml_text.text(*objects, header=""))
        return _SLOT.sub(lambda m: self._texts[int(m[1])], _LINE.sub(self._indented, written))

    def _add(self, text: str) -> str:
        self._texts.append(text)
        return f"slot{len(self._texts) - 1:04}end"

    def _indented(self, match: re.Match[str]) -> str:
        indent, text = match[1], self._texts[int(match[2])]
        text = _INDENT.sub(lambda m: f"nindent {len(indent) + int(m[1])}", text)
        return "\n".join(indent + line for line in text.splitlines())


def _escaped(text: str) -> str:
    """Returns the text with every `{{`, such as Prometheus' own templates, as a template that prints it."""
    return text.replace("{{", '{{ "{{" }}')
