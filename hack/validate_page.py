"""Generates docs/validate.md from the codes of the repository check and the results of tritonserver on the corpus."""

from __future__ import annotations

import json
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

from public_examples import SOURCES

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))

from corpus.faults import FAULTS, Fault  # noqa: E402
from corpus.good import GOOD  # noqa: E402
from corpus.legal import LEGAL  # noqa: E402
from corpus.run_cases import KINDS  # noqa: E402
from kubectl_triton.validate import server_args, with_server  # noqa: E402
from triton_repository_check import check_table  # noqa: E402

CODES = dict(sorted({**check_table.CODES, **server_args.CODES, **with_server.CODES}.items()))

VERDICTS = ROOT / "tests/corpus/verdicts.json"
TOLD = ROOT / "tests/corpus/told.json"

THEMES = {
    "TR0": "The repository",
    "TR1": "config.pbtxt",
    "TR2": "Directories and files",
    "TR3": "model.py",
    "TR4": "Ensembles",
    "TR5": "Resources and flags of the pod",
    "TR6": "ONNX",
    "TR7": "Warm-up and initial states",
    "TR8": "TensorRT, PyTorch, OpenVINO and TensorFlow",
    "TR9": "tritonserver",
}
WHEN = {
    "start": "at start, when it reads the configuration",
    "load": "when it loads the model",
    "hang": "hangs; no model becomes ready",
    "request": "at the first request",
    "never": "never",
}

HEAD = """\
<!-- Made by `make generate` from hack/validate_page.py; change that instead. -->
# Checking a model repository

For authors of model repositories: how to find faults in a repository before a server loads it, and what each code
means.

`kubectl triton validate` reports all faults of a model repository, with file and line. It takes a fraction of a second
and doesn't need Triton. The same repository check runs in each pod before the server. An error there stops the server
from starting, and the TritonModel's conditions show it with the reason `RepositoryInvalid`.

```sh
kubectl triton validate model_images/detection/repository                 # a directory
kubectl triton validate registry.example.com/team/detection:3             # an image that Docker has or can pull
kubectl triton validate detection.tar --path /models                      # an image in a file (docker save)
kubectl triton validate detection.tar --platform linux/arm64              # one of its images for several platforms
kubectl triton validate repository --spec detection.yaml                  # with the limits and flags of a TritonModel
kubectl triton validate --spec detection.yaml                             # the model image of the TritonModel
kubectl triton validate repository --format sarif >validate.sarif         # for code hosts and editors
kubectl triton validate repository --with-server                          # runs tritonserver, and sends requests
kubectl triton validate repository --with-server=cluster                  # the same in a pod, without Docker
```

```
pre/1/model.py:15:75: error TR306: creates output 'SHAPE', which config.pbtxt doesn't declare: the backend drops it — \
use a declared output: SIZE, TENSOR
repository: 4 models, 1 error, 0 warnings, 0 notes
```

| Exit code | |
|---|---|
| 0 | no errors; there may be warnings and notes |
| 1 | errors; with `--strict` also warnings |
| 2 | nothing was checked: an argument is wrong, the directory or image can't be read, Docker doesn't run, or the \
findings can't be written |

Severities:

- **error**: Triton refuses the model, or every request fails. The pod doesn't start the server.
- **warning**: Triton loads the model, but it behaves differently from what the file suggests. Also a fault that the
  repository alone can't prove.
- **note**: valid; you may want to know it.

## Files and links

The check only reads, and only inside the repository. It follows a link that ends in the repository. It doesn't follow
a link that leads out of the repository: the server follows that link in its own image, so the check warns (TR004) and
doesn't judge the files behind it. It never opens pipes, sockets and devices. Of model files it reads only what it
needs, for example the names, types and shapes of an ONNX file, but not the weights.

Of a TensorRT plan it reads the first bytes; of a PyTorch file the directory of the archive, which shows whether it is
TorchScript, AOTInductor or only weights; of an OpenVINO model whether it is one and complete; of a SavedModel the names
of its files. It doesn't know their tensors, nor whether a plan fits the server's GPU and TensorRT.

The check reads an image in a file in place and unpacks nothing: it reads the headers of the layers, applies the layers
and their deletions in memory, and reads single files from the archive. It copies only the files under `--path` in what
is compressed, into one temporary file. Of an image in Docker, `docker cp` gives it a copy of `--path`. It refuses
layers with more than a million entries together, names with `..`, and copies of more than 90 % of the free disk.

It parses config.pbtxt as the C++ parser of the server does, so a text that the server's parser refuses is an error.
It doesn't check a config.pbtxt above 32 MiB or with more than 260,000 values, a model.py above 256 KiB, or an ONNX file
with more than 1,000,000 fields, and warns (TR005). Triton has no such limits. A list of numbers counts only its
different ones. A file of 4 MiB takes less than a second. It reports at most 1,000 findings of a code for each model.

It judges the repository and no requests: a valid model's server can still end by a request that is too large for its
memory, or by a form of 512 MiB or more ([large requests](security.md#large-requests)).

## Images for several platforms

Of a file with images for several platforms, such as one of `docker buildx build --platform linux/amd64,linux/arm64
--output type=oci`, the check judges linux/amd64, or the one that you name with `--platform linux/arm64`. It judges a
file with only one image whatever its platform is. If a file has several platforms, or another one than linux/amd64, the
output names the one that was judged:

```
detection.tar (linux/arm64): 4 models, 0 errors, 0 warnings, 0 notes
```

Attestations, signatures and SBOMs beside the image aren't judged. A file with nothing but those, or with a Helm chart,
is refused with what it is. Two images for the same platform in one file are refused with their names. Without
`--platform`, Docker chooses the platform of an image that it has or pulls.

## Values that the API server refuses

`kubectl triton render`, and `validate` with `--spec`, read a TritonModel as kubectl does, and fail where the API server
refuses a value: in the TritonModel, or when the operator writes the Deployment. Unknown fields are only told. The
message has the place, what the value is, what it must be, and what to write:

```
spec.podTemplate.spec.containers[0].env[0].value: is the number 2, but must be text: quote it: "2"
spec.replicas: is the text "2", but must be a whole number: remove the quotes: 2
```

In YAML without quotes, `yes`, `no`, `on`, `off`, `y` and `n` are true or false, and `1e3`, `017` and `1_000` are
numbers. The rules of the CRD are evaluated as the API server does, so `min` above `max`, or `replicas` beside
`autoscaling`, is refused with its words. A `null` in `spec.models` is only told: it changes nothing. Some mistakes are
found by the API server only ([limits](limits.md#repository-check-and-sample-models)). If the cluster has the CRD of
another version, the operator's condition has the same words for what the operator can't read.

## Settings of the server

Some checks depend on the server's resources and flags. In the pod they come from the TritonModel. On the command line
they come from `--spec` or from these options; the options win, and `--server-arg` adds to `spec.server.args`. What
depends on a value that isn't known is not checked, or only a warning; all models count as loaded.

| Option | In the TritonModel | For |
|---|---|---|
| `--entrypoint` | `spec.entrypoint` | TR501, TR502 |
| `--load-models a,b` | `spec.server.loadModels` | TR330, TR502 to TR504, TR516, TR518; errors of models \
that aren't loaded become warnings |
| `--server-version 2.51`, `24.10` | the tag of a `tritonserver` in `spec.server.image` | TR109, TR126, TR134, TR301, \
TR311, TR504, TR519, TR607, TR610, TR803 |
| `--cpus` | `spec.server.resources.limits.cpu` | TR505 |
| `--gpus` | extended resources of the limits | TR119, TR133, TR134, TR204, TR504, TR505, TR516, TR517 |
| `--shm-size 512Mi` | `spec.server.sharedMemory`, or half of the memory limit | TR504 |
| `--server-arg FLAG`, repeatable | `spec.server.args` | TR104, TR504, TR506, TR512, TR513, \
TR516, TR518 to TR520; `--model-config-name`; what the backend of onnxruntime completes |
| only `--spec` | `OPENBLAS_NUM_THREADS` or `OMP_NUM_THREADS` in `spec.server.env` | TR516. Without them, the check in \
the pod takes the node's cores |
| only `--spec` | `limits.ephemeral-storage` with `modelImage.delivery: Copy` | TR514 |
| only `--spec` | `spec.healthRequest` | TR508, TR515 |
| only `--spec` | NVIDIA's image in `spec.server.image` | TR132 |
| only `--spec` | `spec.models` | TR509, TR510, TR511; all rules judge what the servers run |
| `--path` | `spec.modelImage.path` | the models' directory in an image; default `/models` |
| `--platform OS/ARCH[/VARIANT]` | | which [image of several](#images-for-several-platforms) |

The flags of tritonserver and the forms of their values come from the usage that Triton 2.51 and 2.71 print (TR519). Of
`--http-thread-count=10s` or `--cache-config=local,size=256Mi` Triton reads the 10 or the 256, and says nothing (TR520).

Some findings follow from what the source of a model.py proves: the kinds of arguments (TR318), numpy's types (TR319),
and the models that it calls (TR320, TR321). A variable that is bound more than once is not judged. Neither are most
faults with which a model.py doesn't load: the server names them itself, with file and line, at each start.

## With a real server

`--with-server` starts tritonserver in Docker on the repository (`--server-image`, `--seconds`), with the flags, cores,
shared memory and GPUs above (without GPUs if Docker has none, which it says), and sends requests to it. Only
`--with-server` runs the models' code; the other checks only read files. Give it only repositories that you trust.

An error of tritonserver becomes TR901 or TR902, with the line of model.py if the server names one. A model that doesn't
load doesn't hide the others, unless the server itself ends, as a sample of `model_warmup` that fails may cause. numpy
2 with a server that needs numpy 1 is TR903. Then each model that clients call gets requests, made from the
configuration with which the server runs it:

- zeros, ones and random numbers; as strings: empty ones, `1`, `some text`, `{}`, and a small PNG file. Dimensions of -1
  are 8, 1 and 32.
- without its optional inputs: all of them, and each alone if there are at most 8
- in a batch of two, and in the largest batch whose inputs have at most 64 MiB
- 16 at once, 4 streams at once, and fewer if they would take longer than 10 s
- to a model with sequences: two sequences of three requests at once, and one of one request, instead of those of the
  last two lines
- to a decoupled model: each over a stream, which must end
- the file of `spec.healthRequest`; for another model, `health.json` in its directory
- the values of real requests that you give with `--input-data [MODEL=]FILE`, in perf_analyzer's JSON format (the first
  100)

Then each model without an error, except ensembles, is unloaded, loaded again, and gets one more request; and one that
takes at least 40 ms gets one more after a request that was cancelled, and after one that timed out. The server itself
sends the samples of `model_warmup` when it loads a model.

The steps of an ensemble get requests of their own only if it answers none, or with `--each-step`. A request may take 20
seconds (`--request-seconds`); after one that isn't answered in time, this version of the model gets no others.

```
$ kubectl triton validate repository --with-server
sends requests to detect
pre/1/model.py:21: error TR904: 3 of 34 requests (zeros, batch size 2): fails: IndexError: list index out of range — \
correct the model
repository: 4 models, 1 error, 0 warnings, 0 notes
```

Made-up values may be none that a model takes. So a failure is an error only if it proves a fault: the request's values
are yours, or were answered before in another request, or are numbers of a fixed shape of which none is answered; or the
exception is one that no value causes, such as a wrong name; or there is no answer, or one of another type. Other
exceptions are warnings, and so are other shapes, outputs that are only missing sometimes, and what only happens after a
request was cancelled. If a model itself refuses values, by `pb_utils.TritonError`, that is a note; a warning if it
refuses all, or values that it answered in another form; and an error where another exception would be one.

### In a pod

`--with-server=cluster` runs the server in a pod, with your own permissions, where there is no Docker, or no GPU:

```
$ kubectl triton validate repository --spec detection.yaml --with-server=cluster -n vision
uploading the repository, 12.3 MiB, to the pod detection-trial-1cc5f9a8
sends requests to detect
deleted the pod detection-trial-1cc5f9a8
repository: 4 models, 0 errors, 0 warnings, 0 notes
```

With `--spec` the pod has what the TritonModel's servers have: resources, node selector, secrets for images, variables,
volumes, sidecars and init containers of `spec.podTemplate`. Without it, it has the operator's defaults, and `--cpus`,
`--gpus` and `--shm-size`. It has none of the labels by which Services and others select servers, and the models' folder
is read-only for them, as in a server. The namespace is `-n`, or that of the TritonModel, or of the context.

The command uploads the repository through the API server, and connects by `kubectl port-forward`. It waits up to 30
minutes for a node and the server image, and two minutes for an image that can't be pulled. It deletes the pod at the
end, also after Ctrl-C and SIGTERM; the pod of a command that was killed ends by itself after an hour and a half, or
later with a long `--seconds` or a large repository. It needs the permissions of Kubernetes' role `edit`
([security](security.md#trials)), and `sh`, `head`, `sleep` and `tar` in the server image. The repository is a directory
or an image in a file; for an image in a registry the command still needs Docker.

## Output for programs

`--format json` prints one object with `target`, `ok`, `platform` (null unless it is named), `counts`, `models` and
`findings`. Each finding has `code`, `severity`, `file` (relative to the repository, which itself is `.`; or a field of
the TritonModel, such as `spec.server.args[0]`; or `--server-arg`), `line` and `column` (from 1, or null), `message` and
`remedy`. `--format sarif` prints SARIF 2.1.0, with the platform in the
`properties` of the run. Its paths are relative to the base `REPOSITORY`. With `--base deploy/models`, the directory of
the models in the source tree, they are paths that a code host can show. With both, standard output contains nothing
else.

## The codes

A code never changes its meaning.
"""


def text() -> str:
    """Returns the text of the page."""
    return "\n".join([HEAD, *_codes(), "", *_corpus()]) + "\n"


def _codes() -> list[str]:
    lines: list[str] = []
    for start, title in THEMES.items():
        lines += [f"### {title}", "", "| Code | Meaning |", "|---|---|"]
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
    served = sum(verdicts["legal"][case.name]["when"] == "never" for case in LEGAL if case.name in verdicts["legal"])
    lines = [
        "## Comparison with tritonserver",
        "",
        f"The corpus has {len(FAULTS)} repositories with one fault each (`tests/corpus/faults/`), and {len(LEGAL)}",
        "legal ones that look like faults (`tests/corpus/legal.py`). All are mutations of",
        f"{len(GOOD)} good repositories (`tests/corpus/good/`: " + "; ".join(good.title for good in GOOD) + ").",
        "",
        f"The server is `{verdicts['image']}`. `make corpus` starts it on each repository, with a limit of 45 s. Then",
        "it sends a request of zeros to every ready model and, if the model takes batches, a request with a batch of",
        "two.",
        "",
        "| | Faults |",
        "|---|---|",
        f"| `validate`: the fault's code is an error | {ours['error']} of {len(FAULTS)} |",
        f"| `validate`: it is a warning | {ours['warning']} of {len(FAULTS)} |",
        f"| `validate`: it is a note | {ours['note']} of {len(FAULTS)} |",
        *(f"| tritonserver: {words} | {counts[when]} of {total} |" for when, words in WHEN.items()),
        "",
        f"The server loads and answers {served} of the {len(LEGAL)} legal repositories and all good ones.",
        "`validate` reports no error and no warning for them.",
        f"With {late} faults the server starts: then the first request fails, or the server never reports the fault.",
        "",
        "| Faults of | Cases | `validate`: error | warning or note | tritonserver: at start or load | later or never |",
        "|---|---|---|---|---|---|",
        *(_group(start, title, rows) for start, title in THEMES.items() if start != "TR9"),
        "",
        "The corpus has few faults of TR8, because this server image lacks these backends. The tests have model files",
        "made with PyTorch and OpenVINO, and the errors about such files were tried with both libraries.",
        "",
        "The same people wrote the checks and the corpus, so the table shows that each rule works, but not that there",
        "are no other faults. For known gaps see [limits](limits.md).",
        "",
        "`hack/public_examples.py DIRECTORY` clones public projects with example models and runs the check on them: no",
        f"repository has an error. It lists {len(SOURCES)} projects and their licences. None of them is in this tree.",
        "",
    ]
    lines += _told()
    if verdicts["onnxruntime"] == "Python":
        lines += [
            "This server image has an onnxruntime backend in Python, which checks less than the C++ backend. The C++",
            "backend compares names, types and shapes with the file when it loads the model, and refuses differences.",
            "The rows of TR6 show the results of the Python backend. The rules were also tried with the C++ backend of",
            "servers 2.51, 2.59 and 2.71, on 386 other models. One that the check refuses is served: a Git LFS pointer",
            "that is long enough to be read as weights. Of 49 the check doesn't say that a server refuses them or a",
            "request, because only ONNX Runtime finds it, or because the fault is rare.",
            "",
        ]
    lines += ["| Fault | Model | `validate` | tritonserver | Message of tritonserver |", "|---|---|---|---|---|"]
    return [*lines, *(_row(fault, rows.get(fault.name)) for fault in FAULTS)]


def _told() -> list[str]:
    """Returns what `--with-server` reports about the repositories in tests/corpus/run."""
    told: dict[str, Any] = json.loads(TOLD.read_text())
    faults = [worst for kind in KINDS if kind != "legal" for worst in told[kind].values()]
    number = sum(worst in ("error", "warning") for worst in faults)
    legal = Counter(told["legal"].values())
    lines = [
        f"`tests/corpus/run/` has {len(faults)} other repositories, whose faults show when a server runs them. They",
        f"were made without knowledge of the requests. `--with-server` reports {number} of these faults. Of",
        f"{sum(legal.values())} legal repositories {legal['error']} have an error, and {legal['warning']} a warning:",
        "they refuse made-up values. `hack/run_told.py` runs them.",
        "",
        "| | Repositories | Error | Warning | Not reported |",
        "|---|---|---|---|---|",
    ]
    for kind, words in KINDS.items():
        if kind != "legal":
            counts = Counter(told[kind].values())
            rest = len(told[kind]) - counts["error"] - counts["warning"]
            lines.append(f"| {words} | {len(told[kind])} | {counts['error']} | {counts['warning']} | {rest} |")
    return [*lines, ""]


def _group(start: str, title: str, rows: dict[str, Any]) -> str:
    """Returns a line of the table by theme."""
    cases = [fault for fault in FAULTS if fault.code.startswith(start)]
    errors = sum(fault.severity == "error" for fault in cases)
    early = sum(rows.get(fault.name, {}).get("when") in ("start", "load", "hang") for fault in cases)
    return f"| {title} | {len(cases)} | {errors} | {len(cases) - errors} | {early} | {len(cases) - early} |"


def _row(fault: Fault, row: dict[str, str] | None) -> str:
    ours = f"{fault.code} {fault.severity}, `{fault.place}`"
    when = WHEN[row["when"]] if row else "not run"
    message = _cell(row["said"]) if row and row["when"] != "hang" else ""
    return f"| {fault.name} | {fault.of} | {ours} | {when} | {message} |"


def _cell(message: str, width: int = 140) -> str:
    return textwrap.shorten(message.replace("|", "\\|").replace("<", "&lt;"), width, placeholder=" …")
