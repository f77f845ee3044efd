"""Writes generated YAML files."""

from __future__ import annotations

import yaml

from triton_operator.api.plain_yaml import PlainDumper

HEADER = "# Made by `make generate`; change the code that it is made from instead.\n"


class _Dumper(PlainDumper):
    """A YAML dumper that writes multi-line strings as block scalars."""

    def represent_lines(self, data: str) -> yaml.Node:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Dumper.add_representer(str, _Dumper.represent_lines)


def text(*documents: object, header: str = HEADER) -> str:
    """Returns the documents as YAML, below the header."""
    written: str = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
    return header + written
