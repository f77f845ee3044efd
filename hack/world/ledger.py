"""The record of objects that this program made outside the clone and the cache folder, for `make purge`."""

from __future__ import annotations

from . import settings

_FILE = settings.HOME / "ledger"


def write(kind: str, name: str) -> None:
    """Records an object. Call this before the object is created."""
    if (kind, name) not in read():
        settings.HOME.mkdir(parents=True, exist_ok=True)
        with _FILE.open("a") as file:
            file.write(f"{kind} {name}\n")


def read() -> list[tuple[str, str]]:
    """Returns the kind and name of each recorded object, oldest first."""
    if not _FILE.exists():
        return []
    return [(kind, name) for kind, _, name in (line.partition(" ") for line in _FILE.read_text().splitlines())]


def names(kind: str) -> list[str]:
    return [name for recorded, name in read() if recorded == kind]
