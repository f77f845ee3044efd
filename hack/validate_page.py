"""docs/validate.md, from the checks' own codes, and from what the real server said of the corpus."""

from __future__ import annotations

import json
import sys
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
    "TR5": "What the pod has",
    "TR6": "ONNX",
    "TR7": "Warm-up and first states",
    "TR9": "The real server",
}
WHEN = {
    "start": "at start, reading the configuration",
    "load": "when it loads the model",
    "hang": "hangs, no model ready",
    "request": "at the first request",
    "never": "never",
}

HEAD = """\
<!-- Made by `make generate` from hack/validate_page.py; change that instead. -->
# Checking a model repository

`kubectl triton validate` tells what is wrong with a model repository before a server sees it: with file and line, all
faults at once, in a fraction of a second, and without Triton. It is the very check that runs in each pod before the
server is started; there its errors keep the server from starting, and the conditions of the TritonModel tell them with
the reason `RepositoryInvalid`.

```sh
kubectl triton validate model_images/detection/repository                 # a directory
kubectl triton validate registry.example.com/team/detection:3             # an image, which Docker has or pulls
kubectl triton validate detection.tar --path /models                      # an image that was saved to a file
kubectl triton validate repository --spec detection.yaml                  # with the limits and flags of a TritonModel
kubectl triton validate --spec detection.yaml                             # and with its own image
kubectl triton validate repository --format sarif >validate.sarif         # for code hosts and editors
kubectl triton validate repository --with-server                          # what tritonserver itself says, too
```

```
pre/1/model.py:15:72: error TR306: makes output 'SHAPE', which config.pbtxt doesn't declare, and which is dropped — \
declared are: SIZE, TENSOR
repository: 4 models, 1 errors, 0 warnings, 0 notes
```

| Exit code | |
|---|---|
| 0 | no errors; there may be warnings and notes |
| 1 | errors; with `--strict` also warnings |
| 2 | nothing could be checked: the arguments are wrong, there is no such image, Docker can't be run |

An **error** is what Triton refuses, or what fails every request; a pod isn't started with it. A **warning** starts, and
then does something other than what the text seems to ask for. A **note** is legitimate and worth knowing.

## What it should know

Some checks need to know what the server will have. In the pod that comes from the TritonModel; here from `--spec`, or
from these options, which win over it. What isn't said isn't judged.

| Option | In the TritonModel | For |
|---|---|---|
| `--entrypoint` | `spec.entrypoint` | TR501 |
| `--load-models a,b` | `spec.server.loadModels` | TR503; errors of models that aren't loaded become warnings |
| `--server-version 2.51`, `24.10` | the tag of `spec.server.image`, if it is a `tritonserver` | TR109, TR311 |
| `--cpus` | `spec.server.resources.limits.cpu` | TR505 |
| `--gpus` | extended resources of the limits | TR119, the number of instances |
| `--shm-size 512Mi` | `spec.server.sharedMemory`, or half of the memory limit | TR504 |
| `--response-cache`, `--no-response-cache` | `--cache-config` in `spec.server.args` | TR506 |
| `--path` | `spec.modelImage.path` | where in an image the models are; `/models` |

`--with-server` starts tritonserver in Docker on the repository (`--server-image`, `--seconds`), with the limits above,
and adds what it refuses as TR901 and TR902. It runs the models' code; everything else here only reads.

## Output for programs

`--format json` gives one object with `ok`, `counts`, `models` and `findings`; each finding has `code`, `severity`,
`file` (relative to the repository), `line` and `column` (from 1, or null), `message` and `remedy`. `--format sarif`
gives SARIF 2.1.0, with places relative to the base `REPOSITORY`. Both go to standard output, alone.

## The codes

A code never changes its meaning.
"""


def text() -> str:
    """The whole page."""
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
        "## Who catches what",
        "",
        f"{len(FAULTS)} repositories with one fault each (`tests/corpus/faults/`), made by mutating {len(GOOD)} good",
        "ones (`tests/corpus/good/`: " + "; ".join(good.title for good in GOOD) + ").",
        f"Server: `{verdicts['image']}`, started on each repository by itself, with a limit of 45 s. Every model that",
        "got ready was asked with zeros, once for one and, where it takes batches, once for two. `make corpus` does it",
        "all again.",
        "",
        "| | Faults |",
        "|---|---|",
        f"| `validate`: an error, so that no server is started | {ours['error']} of {len(FAULTS)} |",
        f"| `validate`: a warning | {ours['warning']} of {len(FAULTS)} |",
        f"| `validate`: a note | {ours['note']} of {len(FAULTS)} |",
        *(f"| tritonserver: {words} | {counts[when]} of {total} |" for when, words in WHEN.items()),
        "",
        f"Of the good ones `validate` says nothing, and the server serves all of them. {late} faults get past a start",
        "of the server: clients see them first, or nobody does. The place in a file is told by the server for the",
        "syntax of config.pbtxt and of Python, in its log.",
        "",
        "That `validate` tells all of them says that each check does what it is there for, and not that there are no",
        "other faults: both were written by the same people. What it doesn't see is in [limits](limits.md).",
        "",
    ]
    if verdicts["onnxruntime"] == "Python":
        lines += [
            "The onnxruntime backend of this server image is one written in Python, which compares less than the one",
            "in C++: that one refuses names, types and shapes that differ from the file when it loads the model. The",
            "rows of TR6 tell of the Python one.",
            "",
        ]
    lines += ["| Fault | Of | `validate` | tritonserver | What it says |", "|---|---|---|---|---|"]
    return [*lines, *(_row(fault, rows.get(fault.name)) for fault in FAULTS)]


def _row(fault: Fault, row: dict[str, str] | None) -> str:
    ours = f"{fault.code} {fault.severity}, `{fault.place}`"
    when = WHEN[row["when"]] if row else "not run"
    said = _cell(row["said"]) if row and row["when"] != "hang" else ""
    return f"| {fault.name} | {fault.of} | {ours} | {when} | {said} |"


def _cell(said: str, most: int = 140) -> str:
    line = " ".join(said.split()).replace("|", "\\|").replace("<", "&lt;")
    return line if len(line) <= most else line[: most - 1] + "…"
