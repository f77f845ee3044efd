"""Makes the file of runbooks that `kubectl triton explain-alert` reads, from docs/runbooks."""

from __future__ import annotations

import json
import re
from pathlib import Path

RUNBOOKS = Path(__file__).resolve().parents[1] / "docs" / "runbooks"
_SECTIONS = {"meaning": "What it means", "look": "What to look at", "do": "What to do"}


def text() -> str:
    """Returns JSON: by alert, the paragraphs of each section. Links are replaced by their words."""
    sections = {path.stem: _sections(path.read_text()) for path in sorted(RUNBOOKS.glob("*.md"))}
    return json.dumps(sections, indent=1, ensure_ascii=False) + "\n"


def _sections(page: str) -> dict[str, list[str]]:
    parts = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", page, re.M))
    return {key: _paragraphs(parts[title]) for key, title in _SECTIONS.items()}


def _paragraphs(part: str) -> list[str]:
    """Returns paragraphs and list items, each as one line."""
    # A list item begins a paragraph of its own.
    blocks = re.split(r"\n\s*\n|\n(?=- )", part.strip())
    return [re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", " ".join(block.split())).removeprefix("- ") for block in blocks]
