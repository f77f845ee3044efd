"""Generates the table of parts in docs/bare-machine.md from hack/world."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from hack.world.part import Recipe  # noqa: E402
from hack.world.parts import ALL, GOALS  # noqa: E402
from hack.world.schedule import closure  # noqa: E402

PAGE = ROOT / "docs" / "bare-machine.md"
_BEGIN, _END = "<!-- parts: made by `make generate` -->\n", "<!-- end of parts -->"


def text() -> str:
    """Returns the page with the current table."""
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}{''.join(_table())}{_END}{after}"


def _table() -> Iterator[str]:
    # `make compat` makes control planes of the releases that its caller names.
    every = [part for goal, parts in GOALS.items() if goal != "compat" for part in parts]
    demo, test, rows = (
        {*closure(goals, ALL, "packages"), *closure(goals, ALL, "registry")}
        for goals in (GOALS["demo"], GOALS["test"], every)
    )
    yield "| Part | Description | Version | From registries | From packages | For |\n|---|---|---|---|---|---|\n"
    for name, part in ((name, part) for name, part in ALL.items() if name in rows):
        goal = "all" if name in demo else "tests" if name in test else "`make test-all`"
        columns = [name, part.what, part.version or "–", _from(part.registry), _from(part.packages), goal]
        yield f"| {' | '.join(columns)} |\n"


def _from(recipe: Recipe | None) -> str:
    return recipe.made_from if recipe else "–"
