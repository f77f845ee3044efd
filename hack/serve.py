"""Serve a model repository with Docker, and load anew what changes in it.

    make serve MODELS=my-model/repository

Triton runs in explicit mode: when files of a model change, that model is unloaded and loaded, and the ensembles that it
is a part of. A model that doesn't load leaves the others serving; its reason is shown, and what
`kubectl triton validate` says of it.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

import watchfiles
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

ROOT = Path(__file__).resolve().parent.parent
OWN_IMAGE = "triton-operator/server:dev"


class Triton:
    """A container that serves `repository` on `port` (HTTP), the next one (gRPC) and the one after (metrics)."""

    def __init__(self, repository: Path, image: str, port: int, gpus: str) -> None:
        """Start it; the models load while this returns. Raises SystemExit where Docker can't start it."""
        self.repository = repository
        self.url = f"http://127.0.0.1:{port}"
        self.name = f"triton-serve-{os.getpid()}"
        ports = [f"--publish=127.0.0.1:{port + k}:{8000 + k}" for k in range(3)]
        container = ["--detach", f"--name={self.name}", "--shm-size=1g", f"--volume={repository}:/models:ro", *ports]
        container += [f"--gpus={gpus}"] if gpus else []
        # A model that doesn't load must not end the server: it is about to be changed.
        options = ["--model-control-mode=explicit", "--load-model=*", "--exit-on-error=false", "--log-info=false"]
        command = ["docker", "run", *container, image, "tritonserver", "--model-repository=/models", *options]
        if subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode:
            self._remove()  # Docker keeps what it made and couldn't start
            raise SystemExit(
                "the server could not be started; what Docker says is above. "
                f"It needs the ports {port} to {port + 2}: PORT=… names the first of three others"
            )
        # Only what went wrong: the loads that we ask for answer by themselves.
        self.log = subprocess.Popen(["docker", "logs", "--follow", self.name], stdout=sys.stderr)

    def stop(self) -> None:
        """Stop it and remove it."""
        self._remove()
        self.log.wait()

    def _remove(self) -> None:
        subprocess.run(["docker", "rm", "--force", "--volumes", self.name], check=False, capture_output=True)

    def running(self) -> bool:
        """Whether the container is."""
        shown = ["docker", "inspect", "--format={{.State.Running}}", self.name]
        return subprocess.run(shown, check=False, capture_output=True, text=True).stdout.strip() == "true"

    def wait(self) -> None:
        """Until it answers. With a model that doesn't load it is live and never ready."""
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/v2/health/live", timeout=5):
                    return
            except (OSError, urllib.error.URLError) as error:
                if not self.running():
                    raise SystemExit("the server has ended, its log is above") from error
                time.sleep(0.3)

    def ask(self, model: str, verb: str) -> str:
        """`verb` is load or unload; why it didn't work, or nothing."""
        request = urllib.request.Request(f"{self.url}/v2/repository/models/{model}/{verb}", data=b"{}")
        try:
            with urllib.request.urlopen(request, timeout=600):
                return ""
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except OSError as error:
            return str(error)


def ensembles(repository: Path) -> dict[str, set[str]]:
    """Which models each ensemble is made of; those whose configuration can't be read are left out."""
    found = {}
    for path in repository.glob("*/config.pbtxt"):
        try:
            config = text_format.Parse(path.read_text(encoding="utf-8"), model_config_pb2.ModelConfig())
        except (OSError, UnicodeDecodeError, text_format.ParseError):
            continue
        found[path.parent.name] = {step.model_name for step in config.ensemble_scheduling.step}
    return {name: parts for name, parts in found.items() if parts}


def affected(changed: Iterable[str], whole: dict[str, set[str]]) -> list[str]:
    """The changed models and the ensembles that they are in, directly or through others; parts come first."""
    found = set(changed)
    while more := {name for name, parts in whole.items() if parts & found} - found:
        found |= more
    order: list[str] = []
    while left := sorted(found - set(order)):
        # Where ensembles are made of each other in a circle, Triton will say so.
        order += [name for name in left if not whole.get(name, set()) & set(left)] or left
    return order


def models_of(changes: set[tuple[watchfiles.Change, str]], repository: Path) -> list[str]:
    """The models that the changed files belong to."""
    parts = [Path(path).relative_to(repository).parts for _, path in changes]
    return sorted({p[0] for p in parts if len(p) > 1 or (repository / p[0]).is_dir() or not Path(p[0]).suffix})


def reload(triton: Triton, changed: list[str]) -> None:
    """Unload what has changed and load it again, parts before the ensembles."""
    order = affected(changed, ensembles(triton.repository))
    started, failed = time.monotonic(), []
    for model in reversed(order):
        triton.ask(model, "unload")
    for model in (m for m in order if (triton.repository / m).is_dir()):
        reason = triton.ask(model, "load")
        if reason:
            failed.append(model)
            say(f"{model} doesn't load: {reason}")
    loaded = [m for m in order if m not in failed and (triton.repository / m).is_dir()]
    gone = [m for m in order if not (triton.repository / m).is_dir()]
    if loaded:
        say(f"loaded {', '.join(loaded)} in {time.monotonic() - started:.1f} s")
    if gone:
        say(f"unloaded {', '.join(gone)}")
    if failed:
        validate(triton.repository)


def validate(repository: Path) -> None:
    """Say what `kubectl triton validate` finds."""
    program = Path(sys.executable).with_name("kubectl-triton")
    subprocess.run([program, "validate", repository], check=False, stdout=sys.stderr)


def say(text: str) -> None:
    """A line of our own among Triton's."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def need_image() -> str:
    """The image to serve with: SERVER_IMAGE, or ours, built now unless it is there."""
    given = os.environ.get("SERVER_IMAGE")
    if given:
        return given
    listed = subprocess.run(["docker", "images", "--quiet", OWN_IMAGE], check=True, capture_output=True, text=True)
    if not listed.stdout.strip():
        say(f"building {OWN_IMAGE}")
        subprocess.run(["docker", "build", "-t", OWN_IMAGE, ROOT / "model_images" / "server"], check=True)
    return OWN_IMAGE


def changes(repository: Path) -> Iterator[set[tuple[watchfiles.Change, str]]]:
    """Changes of files, gathered while they come; not what Python and editors leave behind."""
    return watchfiles.watch(repository, debounce=400, step=100, raise_interrupt=False)


def stop(_signal: int, _frame: FrameType | None) -> None:
    """Leave as by Ctrl-C."""
    raise KeyboardInterrupt


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", type=Path, help="a folder with a folder for each model")
    parser.add_argument("--port", type=int, default=8000, help="of HTTP; gRPC and the metrics have the next two")
    parser.add_argument("--gpus", default="", help="what docker run --gpus takes, such as all")
    arguments = parser.parse_args()
    repository = arguments.repository.resolve()
    if not any(repository.glob("*/config.pbtxt")):
        parser.error(f"{arguments.repository} is no model repository: no folder in it has a config.pbtxt")
    signal.signal(signal.SIGTERM, stop)
    triton = Triton(repository, need_image(), arguments.port, arguments.gpus)
    try:
        triton.wait()
        say(f"serving {arguments.repository} at {triton.url}; Ctrl-C ends it")
        for changed in changes(repository):
            if not triton.running():
                say("the server has ended")
                return 1
            reload(triton, models_of(changed, repository))
    except KeyboardInterrupt:
        pass
    finally:
        triton.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
