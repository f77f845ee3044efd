"""Runs the repository check on public example repositories, to find false errors.

Clones them into a directory outside of this tree, from GitHub or from a directory of bare repositories. Compares the
licences of the list with the LICENSE files. Ignores findings about files that the authors don't keep in git, such as
weights.

    python hack/public_examples.py /tmp/clones
    python hack/public_examples.py /tmp/clones --mirror ~/mirror
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "operator"))

from triton_repository_check.check_table import judge  # noqa: E402
from triton_repository_check.findings import Finding, Severity  # noqa: E402
from triton_repository_check.load import load  # noqa: E402


@dataclass(frozen=True, slots=True)
class Source:
    """A public project with model repositories."""

    name: str
    """owner/name on GitHub."""
    licence: str
    """The SPDX name of the licence in its LICENSE file."""
    parts: tuple[str, ...] = (".",)
    """Directories to search for model repositories."""
    commit: str = "HEAD"


SOURCES = (
    Source("triton-inference-server/tutorials", "BSD-3-Clause"),
    Source("triton-inference-server/server", "BSD-3-Clause", ("docs", "qa")),
    Source("triton-inference-server/python_backend", "BSD-3-Clause", ("examples", "inferentia")),
    Source("triton-inference-server/backend", "BSD-3-Clause", ("examples",)),
    Source("triton-inference-server/dali_backend", "MIT"),
    Source("triton-inference-server/fil_backend", "Apache-2.0"),
    Source("triton-inference-server/vllm_backend", "BSD-3-Clause"),
    Source("triton-inference-server/stateful_backend", "MIT"),
    Source("triton-inference-server/identity_backend", "BSD-3-Clause"),
    Source("triton-inference-server/repeat_backend", "BSD-3-Clause"),
    Source("triton-inference-server/model_analyzer", "Apache-2.0", ("examples",)),
    Source("triton-inference-server/model_navigator", "Apache-2.0"),
    Source("triton-inference-server/core", "BSD-3-Clause", ("python",)),
    Source("triton-inference-server/tensorrtllm_backend", "Apache-2.0", ("all_models",),
           "6a749f5ee0a9136f8e6e35b3aa65493a39bafbe7^"),
    Source("triton-inference-server/fastertransformer_backend", "BSD-3-Clause"),
    Source("triton-inference-server/redis_cache", "BSD-3-Clause"),
    Source("triton-inference-server/paddlepaddle_backend", "BSD-3-Clause"),
    Source("Azure/azureml-examples", "MIT"),
    Source("FunAudioLLM/CosyVoice", "Apache-2.0"),
    Source("GoogleCloudPlatform/kubernetes-engine-samples", "Apache-2.0"),
    Source("HarinKhakhi/yolov8-triton", "Apache-2.0"),
    Source("NVIDIA-AI-IOT/deepstream_triton_model_deploy", "Apache-2.0"),
    Source("NVIDIA-ISAAC-ROS/isaac_ros_dnn_inference", "Apache-2.0"),
    Source("NVIDIA-ISAAC-ROS/isaac_ros_image_segmentation", "Apache-2.0"),
    Source("PaddlePaddle/FastDeploy", "Apache-2.0"),
    Source("PatrykNeubauer/sentence-transformers-triton-config", "MIT"),
    Source("SWivid/F5-TTS", "MIT"),
    Source("SparkAudio/Spark-TTS", "Apache-2.0"),
    Source("TejasARathod/AgriDoc-PlantDiseaseClassification-Triton", "MIT"),
    Source("TejasARathod/PhyCV-PhysicsNemo-Triton-Yolov9", "MIT"),
    Source("TerboucheHacene/triton-mlops-deployment", "MIT"),
    Source("danieljdevine/model-serving-triton", "MIT"),
    Source("dev6699/yolotriton", "MIT"),
    Source("fauxpilot/fauxpilot", "MIT"),
    Source("k2-fsa/sherpa", "Apache-2.0"),
    Source("kozistr/triton-grpc-proxy-rs", "Apache-2.0"),
    Source("modelscope/FunASR", "MIT"),
    Source("nv-morpheus/Morpheus", "Apache-2.0", ("models",)),
    Source("omarabid59/yolov8-triton", "Apache-2.0"),
    Source("rapidsai/cloud-ml-examples", "Apache-2.0"),
    Source("softwaremill/triton_playground", "Apache-2.0"),
    Source("speechmatics/ctranslate2_triton_backend", "MIT"),
    Source("yiqisoft/YOLOv8-TritonServer-Python-Post-Processing-Pipeline", "Apache-2.0"),
)  # fmt: skip
"""Their models load on some server. Left out: repositories with faults that Triton refuses too, and those without a
licence."""
LICENCES = {
    "Apache License": "Apache-2.0",
    "Permission is hereby granted": "MIT",
    "Redistributions in binary form": "BSD-3-Clause",
}
"""Words of a LICENSE file, and the licence's SPDX name."""

LEFT_OUT = frozenset(
    {
        "TR004",
        "TR105",
        "TR201",
        "TR204",
        "TR205",
        "TR206",
        "TR208",
        "TR209",
        "TR314",
        "TR401",
        "TR502",
        "TR607",
        "TR701",
    }
)
"""Codes about files that scripts of the authors create or mount, and about the entrypoint, which the examples don't
name."""
BROKEN = re.compile(
    r"qa/(L0_model_config|L0_.*_config|L0_parameters|L0_json|L0_response_cache/models/decoupled_cache|custom_models/.*bad"
    r"|python_models/(bls_finalize_error|bls_init_error|bls_undefined|init_error|fini_error|init_exit|model_env|wrong_model)/"
    r"|L0_backend_python/decoupled/models/decoupled_return_response_error)"
)
"""Models that are invalid on purpose, as tests of errors."""
_NAME = re.compile(r'^name:\s*"([^"]+)"', re.MULTILINE)
_COPIED = frozenset({"Quick_Deploy", "qa", "io", "python_models", "examples", "torchvision"})
"""Directories with models that aren't model repositories."""
_ENV = {**os.environ, "GIT_LFS_SKIP_SMUDGE": "1"}
_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
_FILLED = {
    "triton_backend": "tensorrtllm",
    "decoupled_mode": "true",
    "max_queue_delay_microseconds": "0",
    "batching_strategy": "inflight_fused_batching",
}


def main() -> int:
    """Prints the findings of each repository, and counts. Returns 1 if there are errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clones", type=Path, help="directory for the clones; existing clones are kept")
    parser.add_argument("--verbose", action="store_true", help="also print notes")
    parser.add_argument("--mirror", type=Path, help="directory with git directories owner+name/repo; default: GitHub")
    options = parser.parse_args()
    checked = refused = warned = wrong = 0
    for source in SOURCES:
        clone = _clone(source, options.clones, options.mirror)
        if clone is None:
            print(f"{source.name}: can't be cloned")
            wrong += 1
            continue
        if (licence_name := licence(clone)) != source.licence:
            print(f"{source.name}: the licence is {licence_name}, not {source.licence}")
            wrong += 1
        for place, models in repositories(clone, source.parts):
            name = f"{source.name}/{place.relative_to(clone)}"
            findings = [f for f in check(models) if f.severity is not Severity.NOTE or options.verbose]
            checked += 1
            refused += any(f.severity is Severity.ERROR for f in findings)
            warned += any(f.severity is Severity.WARNING for f in findings)
            for finding in findings:
                print(f"{name}: {finding}")
    print(f"{checked} repositories: {refused} with errors, {warned} with warnings")
    return 1 if refused or wrong else 0


def licence(clone: Path) -> str:
    """Returns the SPDX name of the licence in the LICENSE file, or "unknown"."""
    files = [path for path in sorted(clone.iterdir()) if path.is_file() and path.name.lower().startswith("licen")]
    text = "".join(path.read_text(errors="replace")[:4000] for path in files)
    return next((name for words, name in LICENCES.items() if words in text), "unknown")


def repositories(clone: Path, parts: tuple[str, ...]) -> Iterator[tuple[Path, list[Path]]]:
    """Returns the repositories and their models. Each example outside of a model repository is a repository."""
    by_place: dict[Path, list[Path]] = {}
    for part in parts:
        for config in sorted((clone / part).rglob("config.pbtxt")):
            model = config.parent
            if BROKEN.search(config.as_posix()) or model.name.isdecimal():
                continue
            by_place.setdefault(model if model.parent.name in _COPIED else model.parent, []).append(model)
    return iter(sorted(by_place.items()))


def check(models: list[Path]) -> list[Finding]:
    """Returns the findings of a repository, after the changes that its authors' scripts make."""
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            # The instructions of examples outside of a model repository copy them to a directory with the model's name.
            match = _NAME.search((model / "config.pbtxt").read_text()) if model.parent.name in _COPIED else None
            _complete(model, Path(folder, match[1] if match else model.name))
        return [f for f in judge(*load(folder)) if f.code not in LEFT_OUT]


def _complete(model: Path, copy: Path) -> None:
    """Copies the model, fills the placeholders, and creates a version directory if there is none."""
    shutil.copytree(model, copy, symlinks=True, ignore=_large)
    config = copy / "config.pbtxt"
    text = config.read_text()
    config.write_text(_PLACEHOLDER.sub(lambda match: _filled(match, text), text))
    if not any(path.is_dir() and path.name.isdecimal() for path in copy.iterdir()):
        (copy / "1").mkdir()
        for name in ("model.py", "dali.py"):
            if (copy / name).exists():
                (copy / name).rename(copy / "1" / name)


def _filled(match: re.Match[str], text: str) -> str:
    """Returns a value for a placeholder: text inside of quotes, else a number."""
    quoted = text[match.start() - 1 : match.start()] == '"'
    if match[1] in _FILLED:
        return _FILLED[match[1]]
    if match[1].endswith("_type"):
        return "TYPE_FP16"
    return "1" if quoted else "8"


def _large(folder: str, names: list[str]) -> set[str]:
    """Returns the names of large files and of Git LFS pointers."""
    files = {name: Path(folder, name) for name in names if Path(folder, name).is_file()}
    return {name for name, file in files.items() if file.stat().st_size > 2**22 or _is_pointer(file)}


def _is_pointer(file: Path) -> bool:
    with file.open("rb") as content:
        return content.read(24).startswith(b"version https://git-lfs")


def _clone(source: Source, clones: Path, mirror: Path | None) -> Path | None:
    """Returns the directory of a clone, which it makes if there is none; None if that fails."""
    name = source.name.replace("/", "+")
    place = clones / name
    if not place.exists():
        url = f"https://github.com/{source.name}.git" if mirror is None else str(mirror / name / "repo")
        depth = ["--depth=1"] if source.commit == "HEAD" and mirror is None else []
        if subprocess.run(
            ["git", "clone", "--quiet", "--no-checkout", *depth, url, str(place)], check=False
        ).returncode:
            return None
        # A mirror may lack the largest files, which git then leaves out.
        out = subprocess.run(["git", "-C", str(place), "checkout", "--quiet", source.commit], check=False, env=_ENV)
        if out.returncode and mirror is None:
            return None
    return place


if __name__ == "__main__":
    sys.exit(main())
