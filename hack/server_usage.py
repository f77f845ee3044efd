"""Adds the flags of one version's `tritonserver --help` to operator/kubectl_triton/validate/server_usage.json.

Run it with each server image: docker run --rm IMAGE tritonserver --help | python hack/server_usage.py 2.51
Flags of the other versions stay, because a build of tritonserver may lack some.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

USAGE = Path(__file__).resolve().parent.parent / "operator/kubectl_triton/validate/server_usage.json"
_FLAG = re.compile(r"^  --([a-z0-9-]+)(?: <(.*)>)?\n((?:\t.*\n)*)", re.MULTILINE)
_CHOICES = re.compile(r"(?:Options are|Allowed values are|Allowed APIs:|Allowed protocols:|is either) ([^.]+)")


def flags(usage: str) -> dict[str, dict[str, Any]]:
    """Returns the form and the choices of each flag's value, from the text of `tritonserver --help`."""
    found = {}
    for name, value, text in _FLAG.findall(usage):
        if name != "help":
            match = _CHOICES.search(" ".join(text.split()))
            # Some forms have angle brackets of their own: <<string>:<integer>>.
            form = value if value.startswith("<") or not value else f"<{value}>"
            found[name] = {"value": form, "choices": _words(match[1]) if match else []}
    return found


def _words(text: str) -> list[str]:
    return re.findall(r'"([^"]+)"', text) or re.split(r", | and ", text)


def merged(usage: Mapping[str, Any], version: str, found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the content of server_usage.json with the flags of one more version, which wins where two differ."""
    versions = sorted({*usage["versions"], version}, key=_number)
    known = usage["flags"]
    firsts = {name: min(version, known.get(name, {}).get("first", version), key=_number) for name in found}
    added = {name: {**entry, "first": firsts[name]} for name, entry in found.items()}
    return {"versions": versions, "flags": dict(sorted({**known, **added}.items()))}


def _number(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def main() -> int:
    usage = json.loads(USAGE.read_text()) if USAGE.exists() else {"versions": [], "flags": {}}
    new = merged(usage, sys.argv[1], flags(sys.stdin.read()))
    USAGE.write_text(json.dumps(new, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
