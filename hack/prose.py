"""Checks the words, links, form and examples of the Markdown pages, and the words of docstrings and comments in Python.

hack/prose.txt lists the words to avoid. Prints one line per problem and exits with 1 if there is one. Arguments are
files; the default is every tracked file.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS = ROOT / "hack" / "prose.txt"
HISTORY = "CHANGELOG.md"
"""Its entries aren't rewritten, so it isn't checked."""
RECORD_PARTS = ("## Context", "## Decision", "## Consequences")
RUNBOOK_PARTS = ("## What it means", "## What to look at", "## What to do")
CODE = re.compile(r"^```.*?^```|`[^`]*`|<!--.*?-->", re.DOTALL | re.MULTILINE)
CURL = re.compile(r"\bcurl (?:\\\n|[^\n])*")
"""A command, with the lines that follow a backslash."""
LINK = re.compile(r"\]\(([^)\s]+)\)")


def main() -> int:
    files = [Path(p).resolve() for p in sys.argv[1:]] or _tracked()
    problems = [problem for file in files for problem in check(file)]
    print(*problems, sep="\n", file=sys.stderr, end="\n" if problems else "")
    return 1 if problems else 0


def check(file: Path) -> Iterator[str]:
    """Yields the problems of one file, each as `path:line: problem`."""
    text, name = file.read_text(), file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else str(file)
    prose = _without_code(_comments(text) if file.suffix == ".py" else text)
    yield from (f"{name}:{line}: {problem}" for line, problem in _words(prose))
    if file.suffix == ".py":
        return
    yield from (f"{name}:1: {problem}" for problem in _form(name, text))
    for match in CURL.finditer(text):
        if re.search(r" (-d|--data\S*) ", match[0]) and "/v2/" in match[0] and "Content-Type: " not in match[0]:
            yield f"{name}:{_line(text, match.start())}: curl would send a form: add -H 'Content-Type: …'"
    for match in LINK.finditer(prose):
        if problem := _link(file, match[1]):
            yield f"{name}:{_line(text, match.start())}: {problem}"


def _words(prose: str) -> Iterator[tuple[int, str]]:
    for pattern, instead in _avoided():
        for match in pattern.finditer(prose.lower()):
            yield _line(prose, match.start()), f"avoid {' '.join(match[0].split())!r}: {instead}"


@functools.cache
def _avoided() -> list[tuple[re.Pattern[str], str]]:
    patterns = []
    for line in WORDS.read_text().splitlines():
        if line and not line.startswith("#"):
            words, instead = line.split(" -> ")
            # A line break, and an indentation after it, count as a space. A lookbehind must have a fixed width.
            words = re.sub(r" (?![?)])", r"\\s+", words)
            patterns.append((re.compile(rf"\b(?:{words})\b"), instead))
    return patterns


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
    """Replaces code and HTML comments by spaces, so that positions stay the same."""
    return CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _comments(source: str) -> str:
    """Returns the docstrings and comments of a Python file, with an empty line for every other line."""
    lines = [""] * (source.count("\n") + 1)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = token.string.lstrip("#")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for number, line in enumerate(node.value.value.splitlines(), node.lineno):
                lines[number - 1] = line
    return "\n".join(lines)


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "*.md", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [ROOT / name for name in listed.stdout.splitlines() if name != HISTORY]


if __name__ == "__main__":
    sys.exit(main())
