"""YAML as people write it."""

from __future__ import annotations

import yaml


class PlainDumper(yaml.SafeDumper):
    """Writes a value that stands twice in full, instead of as an anchor and an alias."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True
