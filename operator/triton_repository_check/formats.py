"""Output formats for findings: text, JSON, and SARIF for code hosts and editors."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from triton_repository_check.findings import Finding, Severity
from triton_repository_check.model import Repository
from triton_repository_check.text import one_line

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def summary(repository: Repository, findings: Sequence[Finding]) -> str:
    """Returns counts such as `3 models, 1 error, 0 warnings, 0 notes`."""
    counts = {"model": len(repository.models), **{str(s): sum(f.severity is s for f in findings) for s in Severity}}
    return ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for word, count in counts.items())


def text(name: str, repository: Repository, findings: Sequence[Finding], platform: str = "") -> str:
    """Returns one line for each finding, and a line with counts. `platform`: that of the image, unless it is usual."""
    target = one_line(f"{name} ({platform})" if platform else name)
    return "\n".join([*map(str, findings), f"{target}: {summary(repository, findings)}"]) + "\n"


def as_json(name: str, repository: Repository, findings: Sequence[Finding], platform: str = "") -> str:
    """Returns a JSON object: target, platform (see `text`), ok, models, counts and findings.

    `platform`, `line` and `column` are null if there is none.
    """
    document = {
        "target": one_line(name),
        "platform": one_line(platform) or None,
        "ok": not any(f.severity is Severity.ERROR for f in findings),
        "models": sorted(repository.models),
        "counts": {str(s): sum(f.severity is s for f in findings) for s in Severity},
        "findings": [asdict(finding) for finding in findings],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def sarif(
    findings: Sequence[Finding], codes: Mapping[str, str], version: str, base: str | None = None, platform: str = ""
) -> str:
    """Returns a SARIF 2.1.0 log.

    Paths start with `base`, the directory of the models in the source tree, as code hosts need it. Without `base`, they
    are relative to the model repository, with the uriBaseId REPOSITORY. `platform`: see `text`.
    """
    used = sorted({finding.code for finding in findings})
    driver = {
        "name": "kubectl-triton-validate",
        "version": version,
        "rules": [{"id": code, "shortDescription": {"text": codes.get(code, code)}} for code in used],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, used.index(finding.code), base) for finding in findings],
        **({"properties": {"platform": one_line(platform)}} if platform else {}),
    }
    return json.dumps({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _result(finding: Finding, index: int, base: str | None) -> dict[str, Any]:
    # A field of the TritonModel is in none of the repository's files.
    file, message = (".", f"{finding.file}: {finding.message}") if finding.in_spec else (finding.file, finding.message)
    if base is None:
        uri = quote(file) if file != "." else "./"
        place: dict[str, Any] = {"artifactLocation": {"uri": uri, "uriBaseId": "REPOSITORY"}}
    else:
        place = {"artifactLocation": {"uri": quote(posixpath.normpath(posixpath.join(base, file)))}}
    if finding.line is not None:
        column = {"startColumn": finding.column} if finding.column else {}
        place["region"] = {"startLine": max(finding.line, 1), **column}
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": str(finding.severity),
        "message": {"text": f"{message} — {finding.remedy}" if finding.remedy else message},
        "locations": [{"physicalLocation": place}],
    }
