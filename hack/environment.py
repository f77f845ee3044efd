"""The environment of tests and of generators: the same for every caller."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_NAMES = [
    line
    for line in Path(__file__).with_name("environment.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
_PREFIXES = tuple(name[:-1] for name in _NAMES if name.endswith("*"))
_LOCAL = "localhost,127.0.0.1,::1"
FIXED = {
    # Every machine has it, except macOS.
    "LC_ALL": "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8",
    "TZ": "UTC",
    # No configuration of the user or of the machine, such as signed commits or other line ends. The checkout may belong
    # to another user, as in a container.
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
}
"""The same as in hack/lib.sh."""


def clean(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment without what only suits the caller. Proxies stay, but not for this machine."""
    cleaned = {name: value for name, value in environ.items() if not (name in _NAMES or name.startswith(_PREFIXES))}
    for name in ("NO_PROXY", "no_proxy"):
        others = cleaned.get(name, "")
        if not others.endswith(_LOCAL):
            cleaned[name] = f"{others},{_LOCAL}" if others else _LOCAL
    return {**cleaned, **FIXED}


def use() -> None:
    """Gives this process and its children the clean environment."""
    environ = clean(os.environ)
    os.environ.clear()
    os.environ.update(environ)
    os.umask(0o022)


def restart() -> None:
    """Runs the program again with the clean environment, unless it has it: some variables act at Python's start."""
    if (environ := clean(os.environ)) != os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], environ)
