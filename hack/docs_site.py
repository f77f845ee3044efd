"""Hooks of MkDocs for the site of the documentation: its navigation, and links to files of the repository.

The pages are written for GitHub, where a link may lead to any file of the repository, and to a folder.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FOLDERS = {"runbooks": "Runbooks", "decisions": "Decisions"}
"""Folders of docs/ that get a page with a list of their pages."""
NAVIGATION: dict[str, tuple[str, ...]] = {
    "Model owners": ("models", "model-control", "live-views", "validate"),
    "On call": ("on-call",),
    "Cluster operators": (
        "operations", "openshift", "scaling", "metrics", "dashboards", "tenants", "newer-triton", "limits",
        "benchmarks", "faults",
    ),
    "Security": ("security", "permissions", "threat-model"),
    "Contributors": ("architecture", "glossary", "bare-machine"),
}  # fmt: skip
_LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")
_CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_log = logging.getLogger("mkdocs.plugins.docs_site")
"""A warning of this logger fails a build with --strict."""


def title(page: Path) -> str:
    """Returns the first heading of a page."""
    heading = re.search(r"^# (.+)$", page.read_text(), re.M)
    return heading[1].replace("`", "") if heading else page.stem


def pages(folder: str) -> list[Path]:
    """Returns the pages of a folder of docs/, by name."""
    return sorted(p for p in (DOCS / folder).glob("*.md") if p.name != "index.md")


def on_config(config: Any) -> Any:
    """Sets the navigation. Pages that aren't in NAVIGATION are in a last section."""
    listed: list[Any] = [{"In five minutes": "index.md"}]
    placed = {name for names in NAVIGATION.values() for name in names}
    more = tuple(page.stem for page in pages(".") if page.stem not in placed)
    for section, names in {**NAVIGATION, **({"More": more} if more else {})}.items():
        entries = [{title(DOCS / f"{name}.md"): f"{name}.md"} for name in names if (DOCS / f"{name}.md").exists()]
        folder = {"On call": "runbooks", "Contributors": "decisions"}.get(section)
        if folder:
            entries.append({FOLDERS[folder]: [f"{folder}/index.md", *(f"{folder}/{p.name}" for p in pages(folder))]})
        listed.append({section: entries})
    config.nav = listed
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds a page with a list of the pages for each of FOLDERS."""
    from mkdocs.structure.files import File

    for folder, heading in FOLDERS.items():
        lines = [f"- [{title(page)}]({page.name})\n" for page in pages(folder)]
        text = f"# {heading}\n\n{''.join(lines)}"
        files.append(File.generated(config, f"{folder}/index.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Lets links to folders and to files outside docs/ lead to the page of the folder, or to the repository."""
    source = page.file.src_uri

    def replaced(link: re.Match[str]) -> str:
        target, problem = resolve(source, link[1], config.repo_url)
        if problem:
            _log.warning("%s: %s", source, problem)
        return f"]({target})"

    parts = _CODE.split(markdown)
    # Every second part is code.
    return "".join(part if k % 2 else _LINK.sub(replaced, part) for k, part in enumerate(parts))


def resolve(source: str, target: str, repository: str) -> tuple[str, str]:
    """Returns the link to use for `target` on the page `source` (below docs/), and what is wrong with it."""
    path, _, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", target):
        return target, ""
    place = Path(os.path.normpath(DOCS / source / ".." / path))
    if place.is_relative_to(DOCS):
        inside = place.relative_to(DOCS).as_posix()
        return (f"{path.rstrip('/')}/index.md", "") if inside in FOLDERS else (target, "")
    if not place.is_relative_to(ROOT) or not place.exists():
        return target, f"broken link: {target}"
    kind = "tree" if place.is_dir() else "blob"
    suffix = f"#{anchor}" if anchor else ""
    return f"{repository}/{kind}/main/{place.relative_to(ROOT).as_posix()}{suffix}", ""
