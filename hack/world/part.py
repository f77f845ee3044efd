"""What a part of the world is, and how it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .job import Job

Source = Literal["registry", "packages"]


@dataclass(frozen=True)
class Recipe:
    """One way to make a part.

    `seconds` and `megabytes` are what it takes on two cores with nothing else running. `inputs` are paths below
    hack/world, or below the root where they begin with "/": the part is made again when their contents change.
    `commands` are programs that it runs; the missing ones are installed from Debian.
    """

    made_from: str
    make: Callable[[Job], None]
    seconds: int
    megabytes: int = 0
    needs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    # Go's compiler takes all cores: two at a time would compile the same packages twice.
    compiles: bool = False
    # What the user can try when it fails, beyond running the same command again.
    advice: str = ""


def never() -> bool:
    return False


@dataclass(frozen=True)
class Part:
    """Something that the cluster or the tests need. A source whose recipe is None does not need it."""

    name: str
    what: str
    version: str
    registry: Recipe | None
    packages: Recipe | None
    # Looks at the machine itself. A part that is present and whose inputs are the same isn't made again.
    present: Callable[[], bool] = never
    # Of this clone, or of this boot of the machine: `present` alone decides, and no stamp is kept.
    stamped: bool = True

    def recipe(self, source: Source) -> Recipe | None:
        return self.registry if source == "registry" else self.packages
