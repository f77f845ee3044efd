"""Generates docs/validate.md from the repository check's codes and the real server's verdicts on the corpus."""

from __future__ import annotations

import json
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))

from corpus.faults import FAULTS, Fault  # noqa: E402
from corpus.good import GOOD  # noqa: E402
from triton_operator.repository.checks import CODES  # noqa: E402

VERDICTS = ROOT / "tests/corpus/verdicts.json"

THEMES = {
    "TR0": "The repository",
    "TR1": "config.pbtxt",
    "TR2": "Directories and files",
    "TR3": "model.py",
    "TR4": "Ensembles",
    "TR5": "Resources and flags of the server",
    "TR6": "ONNX",
    "TR7": "Warm-up and initial state",
    "TR9": "The real server (`--with-server`)",
}
WHEN = {
    "start": "at start, reading the configuration",
    "load": "when it loads the model",
    "hang": "hangs; no model becomes ready",
    "request": "at the first request",
    "never": "never",
}

HEAD = """\
<!-- Made by `make generate` from hack/validate_page.py; change that instead. -->
# Checking a model repository

For model owners: how to check a repository before a server loads it, and what each code means.

`kubectl triton validate` reports all errors at once, with file and line, in a fraction of a second and without Triton.
The same check runs in each pod before the server starts. If it finds errors there, the server doesn't start and the
TritonModel's conditions show them with the reason `RepositoryInvalid`.

```sh
kubectl triton validate model_images/detection/repository                 # a directory
kubectl triton validate registry.example.com/team/detection:3             # an image that Docker has or can pull
kubectl triton validate detection.tar --path /models                      # an image in a file, from docker save
kubectl triton validate repository --spec detection.yaml                  # with the limits and flags of a TritonModel
kubectl triton validate --spec detection.yaml                             # with the TritonModel's image, too
kubectl triton validate repository --format sarif >validate.sarif         # for code hosts and editors
kubectl triton validate repository --with-server                          # also runs tritonserver
```

```
pre/1/model.py:15:72: error TR306: makes output 'SHAPE', which config.pbtxt doesn't declare, and which is dropped — \
declared are: SIZE, TENSOR
repository: 4 models, 1 errors, 0 warnings, 0 notes
```

| Exit code | Meaning |
|---|---|
| 0 | no errors; warnings and notes are possible |
| 1 | errors; with `--strict` also warnings |
| 2 | the check couldn't run: wrong arguments, image not found, Docker not available |

- An **error**: Triton rejects the model, or every request fails. The pod doesn't start the server.
- A **warning**: the server starts, but probably doesn't do what the author expects.
- A **note**: valid and worth knowing.

## Information about the server

Some checks need facts about the server. In the pod they come from the TritonModel; on your machine they come from
`--spec` or from these options, which override it. A check whose fact is unknown is skipped.

| Option | In the TritonModel | Used by |
|---|---|---|
| `--entrypoint` | `spec.entrypoint` | TR501 |
| `--load-models a,b` | `spec.server.loadModels` | TR503; errors of models that aren't loaded become warnings |
| `--server-version 2.51`, `24.10` | the tag of `spec.server.image`, if the image is a `tritonserver` | TR109, TR311 |
| `--cpus` | `spec.server.resources.limits.cpu` | TR505 |
| `--gpus` | extended resources in the limits | TR119, the number of instances |
| `--shm-size 512Mi` | `spec.server.sharedMemory`, or half of the memory limit | TR504 |
| `--response-cache`, `--no-response-cache` | `--cache-config` in `spec.server.args` | TR506 |
| `--path` | `spec.modelImage.path` | the directory of the models in an image; default `/models` |

`--with-server` also starts tritonserver in Docker on the repository (`--server-image`, `--seconds`) with these limits,
and reports its errors as TR901 and TR902. Only this option runs the models' code.

## Output for programs

`--format json` prints one object with `ok`, `counts`, `models` and `findings`. Each finding has `code`, `severity`,
`file` (relative to the repository), `line` and `column` (from 1, or null), `message` and `remedy`. `--format sarif`
prints SARIF 2.1.0 with paths relative to the base `REPOSITORY`. Both print nothing else to standard output.

## Codes

A code never changes its meaning.
"""


def text() -> str:
    return "\n".join([HEAD, *_codes(), "", *_corpus()]) + "\n"


def _codes() -> list[str]:
    lines: list[str] = []
    for start, title in THEMES.items():
        lines += [f"### {title}", "", "| Code | What |", "|---|---|"]
        lines += [f"| {code} | {what} |" for code, what in CODES.items() if code.startswith(start)]
        lines.append("")
    if left := [code for code in CODES if code[:3] not in THEMES]:
        raise ValueError(f"no theme for {left}")
    return lines[:-1]


def _corpus() -> list[str]:
    verdicts: dict[str, Any] = json.loads(VERDICTS.read_text())
    rows = verdicts["faults"]
    counts = Counter(rows[fault.name]["when"] for fault in FAULTS if fault.name in rows)
    ours = Counter(fault.severity for fault in FAULTS)
    total = sum(counts.values())
    late = counts["request"] + counts["never"]
    lines = [
        "## What `validate` finds, compared with tritonserver",
        "",
        _paragraph(
            f"`tests/corpus/faults/` has {len(FAULTS)} repositories with one error each, derived from {len(GOOD)} "
            "valid ones in `tests/corpus/good/`: " + "; ".join(good.title for good in GOOD) + "."
        ),
        "",
        _paragraph(
            f"`make corpus` starts `{verdicts['image']}` on each repository, for at most 45 s. It then sends every "
            "model that becomes ready a request of zeros: a batch of one and, if the model batches, a batch of two."
        ),
        "",
        "| | Repositories |",
        "|---|---|",
        f"| `validate`: error, so the server doesn't start | {ours['error']} of {len(FAULTS)} |",
        f"| `validate`: warning | {ours['warning']} of {len(FAULTS)} |",
        f"| `validate`: note | {ours['note']} of {len(FAULTS)} |",
        *(f"| tritonserver: {words} | {counts[when]} of {total} |" for when, words in WHEN.items()),
        "",
        _paragraph(
            "`validate` reports nothing for the valid repositories, and the server serves all of them. The server "
            f"starts with {late} of the errors: clients then get wrong or failed responses, or the error stays "
            "unnoticed. The server reports a line only for the syntax of config.pbtxt and Python."
        ),
        "",
        _paragraph(
            "`validate` finds all of these errors because the same authors wrote the checks and the repositories; it "
            "doesn't find every possible error. [limits](limits.md#repository-check-and-sample-models) lists what it "
            "doesn't see."
        ),
        "",
    ]
    if verdicts["onnxruntime"] == "Python":
        lines += [
            _paragraph(
                "The onnxruntime backend of this server image is written in Python and compares less than the native "
                "one, which rejects names, types and shapes that differ from the file when it loads the model. The "
                "rows of TR6 show the Python backend."
            ),
            "",
        ]
    lines += ["| Error | In | `validate` | tritonserver | Its message |", "|---|---|---|---|---|"]
    return [*lines, *(_row(fault, rows.get(fault.name)) for fault in FAULTS)]


def _paragraph(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _row(fault: Fault, row: dict[str, str] | None) -> str:
    ours = f"{fault.code} {fault.severity}, `{fault.place}`"
    when = WHEN[row["when"]] if row else "not run"
    said = _cell(row["said"]) if row and row["when"] != "hang" else ""
    return f"| {fault.name} | {fault.of} | {ours} | {when} | {said} |"


def _cell(said: str, most: int = 140) -> str:
    line = " ".join(said.split()).replace("|", "\\|").replace("<", "&lt;")
    return line if len(line) <= most else line[: most - 1] + "…"
