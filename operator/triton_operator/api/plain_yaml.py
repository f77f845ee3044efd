"""YAML without anchors and aliases."""

from __future__ import annotations

import yaml


class PlainDumper(yaml.SafeDumper):
    """Writes repeated values in full, without anchors and aliases."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True
