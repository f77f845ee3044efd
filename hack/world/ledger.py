"""What we have put on the machine outside the clone and outside our own folder, so that `make purge` can remove it."""

from __future__ import annotations

from . import settings

_FILE = settings.HOME / "ledger"


def write(kind: str, name: str) -> None:
    """Remembers it; call this before it is made."""
    if (kind, name) not in read():
        settings.HOME.mkdir(parents=True, exist_ok=True)
        with _FILE.open("a") as file:
            file.write(f"{kind} {name}\n")


def read() -> list[tuple[str, str]]:
    """Kind and name of each thing, oldest first."""
    if not _FILE.exists():
        return []
    return [(kind, name) for kind, _, name in (line.partition(" ") for line in _FILE.read_text().splitlines())]


def names(kind: str) -> list[str]:
    return [name for found, name in read() if found == kind]
