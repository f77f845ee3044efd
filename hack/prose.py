"""Checks the Markdown pages: words to avoid (hack/prose.txt), broken links, and the form of each page.

Prints one line per problem and exits with 1 if there is one. Arguments are pages; the default is every tracked page.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS = ROOT / "hack" / "prose.txt"
HISTORY = "CHANGELOG.md"
"""Its entries aren't rewritten, so it isn't checked."""
RECORD_PARTS = ("## Context", "## Decision", "## Consequences")
RUNBOOK_PARTS = ("## What it means", "## What to look at", "## What to do")
CODE = re.compile(r"^```.*?^```|`[^`]*`|<!--.*?-->", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def main() -> int:
    pages = [Path(p).resolve() for p in sys.argv[1:]] or _tracked()
    problems = [problem for page in pages for problem in check(page)]
    print(*problems, sep="\n", file=sys.stderr, end="\n" if problems else "")
    return 1 if problems else 0


def check(page: Path) -> Iterator[str]:
    """Yields the problems of one page, each as `path:line: problem`."""
    text, name = page.read_text(), page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else str(page)
    yield from (f"{name}:{line}: {problem}" for line, problem in _words(text))
    yield from (f"{name}:1: {problem}" for problem in _form(name, text))
    for match in LINK.finditer(_without_code(text)):
        if problem := _link(page, match[1]):
            yield f"{name}:{_line(text, match.start())}: {problem}"


def _words(text: str) -> Iterator[tuple[int, str]]:
    prose = _without_code(text).replace("\n", " ").lower()
    for pattern, instead in _avoided():
        for match in pattern.finditer(prose):
            yield _line(text, match.start()), f"avoid {match[0]!r}: {instead}"


def _avoided() -> Iterator[tuple[re.Pattern[str], str]]:
    for line in WORDS.read_text().splitlines():
        if line and not line.startswith("#"):
            words, instead = line.split(" -> ")
            yield re.compile(rf"\b(?:{words})\b"), instead


def _form(name: str, text: str) -> Iterator[str]:
    """Yields what the page lacks: its readers, or the parts of a decision record or a runbook."""
    if name.startswith("docs/decisions/"):
        yield from (f"the record has no part {part!r}" for part in RECORD_PARTS if f"\n{part}\n" not in text)
    elif name.startswith("docs/runbooks/"):
        yield from (f"the runbook has no part {part!r}" for part in RUNBOOK_PARTS if f"\n{part}\n" not in text)
    elif name.startswith("docs/") and not re.search(r"^# .*\n\nFor ", text, re.MULTILINE):
        yield "the first sentence must say for whom the page is: 'For …: …'"


def _link(page: Path, target: str) -> str:
    """Returns what is wrong with a relative link, or nothing."""
    if re.match(r"[a-z]+:", target):
        return ""
    path, _, anchor = target.partition("#")
    to = (page.parent / path).resolve() if path else page
    if not to.exists():
        return f"broken link: {target}"
    if anchor and anchor not in {_anchor(h) for h in re.findall(r"^#+ (.*)$", to.read_text(), re.MULTILINE)}:
        return f"broken link: {target} has no such heading"
    return ""


def _anchor(heading: str) -> str:
    """Returns the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _without_code(text: str) -> str:
    """Replaces code and comments by spaces, so that positions stay the same."""
    return CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.splitlines() if name != HISTORY]


if __name__ == "__main__":
    sys.exit(main())
