"""Starts tritonserver on every repository of the corpus and records at which stage it reports the fault."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "operator")]

from corpus.ask import first_error  # noqa: E402
from corpus.faults import FAULTS, Fault  # noqa: E402
from corpus.good import GOOD, Good  # noqa: E402
from corpus.legal import LEGAL, Legal  # noqa: E402
from kubectl_triton.validate import in_docker, tritonserver  # noqa: E402
from triton_repository_check.expected import Expected  # noqa: E402

VERDICTS = ROOT / "tests/corpus/verdicts.json"
SECONDS = 45.0
"""The longest time that a server may take to start. A good repository takes 2 to 4 seconds."""


def verdict(case: Good | Legal | Fault, expected: Expected, image: str) -> dict[str, str]:
    """Returns the stage at which the server reports a fault (start, load, hang, request, never), and its message."""
    with tempfile.TemporaryDirectory() as folder:
        root = case.write(Path(folder) / "models")
        root.parent.chmod(0o755)
        models = sorted(path.name for path in root.iterdir() if path.is_dir())
        with in_docker.started(root, expected, image, SECONDS) as start:
            if start.refusals:  # also of a server that says that it is ready
                first = start.refusals[0]
                when = "start" if first.early else "load"
                return {"when": when, "said": f"{first.model}: {first.reason}" if first.model else first.reason}
            if start.ready:
                message = _requests(start.address, expected, models)
                return {"when": "request" if message else "never", "said": message}
            lines = [line for line in start.log.splitlines() if line.strip()]
            return {"when": "load" if start.ended else "hang", "said": lines[-1] if lines else ""}


def _requests(address: str, expected: Expected, models: list[str]) -> str:
    """Returns the first error that a request gets, or "". Asks the entrypoint before the other models."""
    order = sorted(models, key=lambda name: name != expected.entrypoint)
    for model in order:
        try:
            message = first_error(address, model)
        except OSError:
            continue  # the server doesn't serve this model
        if message:
            return f"{model}: {message}"
    return ""


def main() -> int:
    """Writes tests/corpus/verdicts.json. `make generate` makes docs/validate.md from it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image", default=tritonserver.IMAGE)
    parser.add_argument("only", nargs="*", help="names of repositories to run; the others keep their verdicts")
    parser.add_argument("--new", action="store_true", help="run only repositories without a verdict")
    options = parser.parse_args()
    verdicts: dict[str, Any] = json.loads(VERDICTS.read_text()) if VERDICTS.exists() else {}
    native = in_docker.docker(
        "run", "--rm", "--entrypoint=sh", options.image, "-c", "ls /opt/tritonserver/backends/onnxruntime"
    )
    for part, cases in (("good", GOOD), ("legal", LEGAL), ("faults", FAULTS)):
        before = verdicts.get(part, {})
        after = {}
        for case in cases:
            expected = case.expected
            if options.only and case.name not in options.only:
                if case.name in before:
                    after[case.name] = before[case.name]
                continue
            if options.new and case.name in before:
                after[case.name] = before[case.name]
                continue
            after[case.name] = verdict(case, expected, options.image)
            print(f"{part} {case.name}: {after[case.name]['when']}: {after[case.name]['said'][:150]}", flush=True)
        verdicts[part] = after
    verdicts["image"] = options.image
    verdicts["onnxruntime"] = "C++" if "libtriton_onnxruntime.so" in native else "Python"
    VERDICTS.write_text(json.dumps(verdicts, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    counts = Counter(row["when"] for row in verdicts["faults"].values())
    print(", ".join(f"{when}: {count}" for when, count in counts.most_common()))
    return 0 if all(row["when"] == "never" for part in ("good", "legal") for row in verdicts[part].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
