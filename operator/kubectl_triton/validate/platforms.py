"""Platforms of images, such as linux/amd64 and linux/arm/v7."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_FORM = re.compile(r"([a-z0-9_.-]+)/([a-z0-9_.-]+)(?:/([a-z0-9_.-]+))?", re.ASCII)
_ARCHITECTURES = {"x86_64": "amd64", "x86-64": "amd64", "aarch64": "arm64", "armhf": "arm", "i386": "386"}
"""Other names of an architecture, as uname and Debian call it."""
_USUAL = {"amd64": "v1", "arm": "v7", "arm64": "v8"}
"""The variant of an architecture that is meant if none is named."""
_UNKNOWN = "unknown"
_MAX_LENGTH = 64


class Platform(NamedTuple):
    """A platform. `variant` is empty for the usual one of the architecture."""

    os: str
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in self if part)


DEFAULT = Platform("linux", "amd64")


def parse(text: str) -> Platform:
    """Returns the platform in OS/ARCH[/VARIANT]. Raises ValueError."""
    match = _FORM.fullmatch(text.lower())
    if match is None:
        raise ValueError(f"{text!r} is not a platform, such as linux/amd64 or linux/arm/v7")
    return _normal(match[1], match[2], match[3] or "")


def described(fields: object) -> Platform | None:
    """Returns the platform in a descriptor of an index or in the configuration of an image; None if it has none."""
    if not isinstance(fields, Mapping):
        return None
    os, architecture, variant = (fields.get(name) or "" for name in ("os", "architecture", "variant"))
    texts = isinstance(os, str) and isinstance(architecture, str) and isinstance(variant, str)
    if (
        not texts
        or len(os + architecture + variant) > _MAX_LENGTH
        or _UNKNOWN in (os, architecture)
        or not (os and architecture)
    ):
        return None
    return _normal(os, architecture, variant)


def _normal(os: str, architecture: str, variant: str) -> Platform:
    architecture = _ARCHITECTURES.get(architecture, architecture)
    return Platform(os, architecture, "" if variant == _USUAL.get(architecture) else variant)
