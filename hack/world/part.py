"""The parts that the cluster and the tests need, and the recipes to make them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .job import Job

Source = Literal["registry", "packages"]


@dataclass(frozen=True)
class Recipe:
    """One way to make a part.

    - `seconds`, `megabytes`: its duration and disk space on two cores with nothing else running
    - `needs`: names of parts that must be made first
    - `inputs`: paths relative to hack/world, or to the root if they begin with "/"; the part is made again if their
      contents change
    - `commands`: programs that it runs; missing ones are installed from Debian
    """

    made_from: str
    make: Callable[[Job], None]
    seconds: int
    megabytes: int = 0
    needs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    # Only one such recipe runs at a time: Go's compiler uses all cores, and two would compile the same packages twice.
    compiles: bool = False
    # What the user can try if it fails, besides running the same command again.
    advice: str = ""


def never() -> bool:
    return False


@dataclass(frozen=True)
class Part:
    """Something that the cluster or the tests need. A source with the recipe None doesn't need it."""

    name: str
    what: str
    version: str
    registry: Recipe | None
    packages: Recipe | None
    # Checks the machine. A part that is present with unchanged inputs isn't made again.
    present: Callable[[], bool] = never
    # False for a part of this clone or of this boot of the machine: only `present` decides, without a stamp.
    stamped: bool = True

    def recipe(self, source: Source) -> Recipe | None:
        return self.registry if source == "registry" else self.packages


def group(name: str, what: str, version: str, made_from: str, needs: tuple[str, ...]) -> Part:
    """Returns a part that consists of other parts."""
    recipe = Recipe(made_from=made_from, make=_nothing, seconds=1, needs=needs)
    return Part(name, what, version, registry=recipe, packages=recipe, stamped=False)


def _nothing(job: Job) -> None:
    job.say("nothing to do: its parts are separate")
