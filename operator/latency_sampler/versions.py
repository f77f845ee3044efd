"""Which servers can trace requests without harm."""

from __future__ import annotations

import re

Version = tuple[int, int]

OLDEST: Version = (2, 57)
"""Release 25.04. Up to 2.56 Triton unlocks a mutex that it has just freed, if a response is sent before the trace of
its request ends (server#8144). On 2.51, with 2,500 requests/s to an ensemble, this ended the server after 190 to 22,000
traced requests."""
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})\b")


def parse(text: str) -> Version | None:
    """Returns the version in a text such as 2.57.0; None if it has none."""
    found = _VERSION.match(text)
    return (int(found[1]), int(found[2])) if found else None


def may_trace(text: str, oldest: Version = OLDEST) -> bool:
    """Whether a server of this version, e.g. 2.57.0, can trace requests without harm. An unknown version can't."""
    version = parse(text)
    return version is not None and version >= oldest
