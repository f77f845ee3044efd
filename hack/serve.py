"""Serves a model repository with Triton in Docker and reloads the models that change.

    make serve MODELS=my-model/repository

Triton runs in explicit mode: when files of a model change, this program unloads and loads the model and the ensembles
that contain it. If a model doesn't load, the others keep serving, and the program prints Triton's reason and the
findings of `kubectl triton validate`. Models that load get requests made from their configurations, as with
`kubectl triton validate --with-server`; the program prints what fails.

With DEBUG=MODEL, `breakpoint()` in that Python model waits for a client of pdb, such as `nc` (hack/serve_debugger.py).
In other models it does nothing. Without DEBUG pdb finds no terminal, and the request fails.
"""

from __future__ import annotations

import argparse
import itertools
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

from kubectl_triton.trial import run as trial
from triton_operator.render import start
from triton_repository_check.findings import Severity

ROOT = Path(__file__).resolve().parent.parent
OWN_IMAGE = "triton-operator/server:dev"
DEBUGGER = ROOT / "hack" / "serve_debugger.py"


class Triton:
    """A container that serves `repository`: HTTP on `port`, gRPC on `port` + 1, metrics on `port` + 2.

    With `debug`, a model, its breakpoints listen on `port` + 3.
    """

    def __init__(self, repository: Path, image: str, port: int, gpus: str, debug: str) -> None:
        """Starts the container and doesn't wait for the models. Raises SystemExit if Docker can't start it."""
        self.repository = repository
        self.url = f"http://127.0.0.1:{port}"
        self.grpc = f"127.0.0.1:{port + 1}"
        self.name = f"triton-serve-{os.getpid()}"
        self.debug = debug
        last = port + (3 if debug else 2)
        ports = [f"--publish=127.0.0.1:{k}:{8000 + k - port}" for k in range(port, last + 1)]
        container = ["--detach", f"--name={self.name}", "--shm-size=1g", f"--volume={repository}:/models:ro", *ports]
        container += [f"--ulimit=stack={start.STACK_KIB << 10}"]  # as in a pod
        container += [f"--gpus={gpus}"] if gpus else []
        container += _debugging(debug, last) if debug else []
        # A model that doesn't load must not end the server: the user is about to fix it.
        options = ["--model-control-mode=explicit", "--load-model=*", "--exit-on-error=false", "--log-info=false"]
        command = ["docker", "run", *container, image, "tritonserver", "--model-repository=/models", *options]
        if subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode:
            self._remove()  # Docker keeps a container that it couldn't start
            raise SystemExit(
                "Docker couldn't start the server; its message is above. "
                f"The server needs the ports {port} to {last}; PORT=… sets the first of {last - port + 1} other ports"
            )
        # The log shows only warnings and errors (--log-info=false); load requests return their own result.
        self.log = subprocess.Popen(["docker", "logs", "--follow", self.name], stdout=sys.stderr)

    def stop(self) -> None:
        """Stops and removes the container."""
        self._remove()
        self.log.wait()

    def _remove(self) -> None:
        subprocess.run(["docker", "rm", "--force", "--volumes", self.name], check=False, capture_output=True)

    def running(self) -> bool:
        """Returns whether the container runs."""
        command = ["docker", "inspect", "--format={{.State.Running}}", self.name]
        return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip() == "true"

    def wait(self) -> None:
        """Waits until the server is live, not ready: that needs all models. Raises SystemExit if the server ends."""
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/v2/health/live", timeout=5):
                    return
            except (OSError, urllib.error.URLError) as error:
                if not self.running():
                    raise SystemExit("the server ended; its log is above") from error
                time.sleep(0.3)

    def request(self, model: str, verb: str) -> str:
        """Sends a load or unload request (`verb`). Returns the error, or "" if it succeeded."""
        request = urllib.request.Request(f"{self.url}/v2/repository/models/{model}/{verb}", data=b"{}")
        try:
            # At a breakpoint in `initialize` a model loads for as long as the user wants.
            with urllib.request.urlopen(request, timeout=None if self.debug else 600):
                return ""
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except OSError as error:
            return str(error)


def _debugging(model: str, port: int) -> list[str]:
    """Returns options of docker run for the debugger. `port` is the one on this machine.

    A model's process ignores Python's variables, PYTHONBREAKPOINT too, but imports from its working directory first.
    """
    folder = "/debugger"
    volume = f"--volume={DEBUGGER}:{folder}/triton_python_backend_utils.py:ro"
    return [volume, f"--workdir={folder}", f"--env=DEBUG_MODEL={model}", f"--env=DEBUG_PORT={port}"]


def ensembles(repository: Path) -> dict[str, set[str]]:
    """Returns the composing models of each ensemble. Leaves out models whose config.pbtxt can't be read."""
    composing = {}
    for path in repository.glob("*/config.pbtxt"):
        try:
            config = text_format.Parse(path.read_text(encoding="utf-8"), model_config_pb2.ModelConfig())
        except (OSError, UnicodeDecodeError, text_format.ParseError):
            continue
        composing[path.parent.name] = {step.model_name for step in config.ensemble_scheduling.step}
    return {name: parts for name, parts in composing.items() if parts}


def affected(changed: Iterable[str], whole: dict[str, set[str]]) -> list[str]:
    """Returns the changed models and all ensembles that contain them, composing models before their ensembles."""
    models = set(changed)
    while more := {name for name, parts in whole.items() if parts & models} - models:
        models |= more
    order: list[str] = []
    while left := sorted(models - set(order)):
        # If ensembles contain each other in a cycle, Triton reports it.
        order += [name for name in left if not whole.get(name, set()) & set(left)] or left
    return order


def models_of(changes: set[tuple[watchfiles.Change, str]], repository: Path) -> list[str]:
    """Returns the names of the models that contain the changed files."""
    parts = [Path(path).relative_to(repository).parts for _, path in changes]
    return sorted({p[0] for p in parts if len(p) > 1 or (repository / p[0]).is_dir() or not Path(p[0]).suffix})


def reload(triton: Triton, changed: list[str]) -> None:
    """Unloads the changed models and loads them again, composing models before their ensembles."""
    order = affected(changed, ensembles(triton.repository))
    started, failed = time.monotonic(), []
    for model in reversed(order):
        triton.request(model, "unload")
    for model in (m for m in order if (triton.repository / m).is_dir()):
        reason = triton.request(model, "load")
        if reason:
            failed.append(model)
            say(f"{model} doesn't load: {reason}")
    loaded = [m for m in order if m not in failed and (triton.repository / m).is_dir()]
    gone = [m for m in order if not (triton.repository / m).is_dir()]
    if loaded:
        say(f"loaded {', '.join(loaded)} in {time.monotonic() - started:.1f} s")
        send_requests(triton, loaded)
    if gone:
        say(f"unloaded {', '.join(gone)}")
    if failed:
        validate(triton.repository)


def validate(repository: Path) -> None:
    """Prints the findings of `kubectl triton validate`."""
    program = Path(sys.executable).with_name("kubectl-triton")
    subprocess.run([program, "validate", repository], check=False, stdout=sys.stderr)


def send_requests(triton: Triton, models: list[str]) -> None:
    """Sends requests to the models, and prints what fails. With no model, to all that clients call.

    Sends none to a server with a debugger: they would stop at its breakpoints.
    """
    if triton.debug:
        return
    plan = trial.Plan([path.name for path in triton.repository.iterdir() if path.is_dir()], only=models, reloads=False)
    findings = trial.run(triton.grpc, plan, lambda _: None)
    for finding in findings:
        say(str(finding))
    if not any(finding.severity is Severity.ERROR for finding in findings):
        say("requests are answered")


def say(text: str) -> None:
    """Prints a line with the time, to tell it from Triton's log."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def need_image() -> str:
    """Returns SERVER_IMAGE or, if it isn't set, the project's server image. Builds the latter if it is missing."""
    image = os.environ.get("SERVER_IMAGE")
    if image:
        return image
    listed = subprocess.run(["docker", "images", "--quiet", OWN_IMAGE], check=True, capture_output=True, text=True)
    if not listed.stdout.strip():
        say(f"building {OWN_IMAGE}")
        subprocess.run(["docker", "build", "-t", OWN_IMAGE, ROOT / "model_images" / "server"], check=True)
    return OWN_IMAGE


def changes(repository: Path) -> Iterator[set[tuple[watchfiles.Change, str]]]:
    """Yields sets of changed files, collected over 400 ms; empty ones while nothing changes.

    Ignores files that Python and editors create. Files that change after the first set aren't missed.
    """
    return watchfiles.watch(
        repository, debounce=400, step=100, rust_timeout=500, yield_on_timeout=True, raise_interrupt=False
    )


def stop(_signal: int, _frame: FrameType | None) -> None:
    """Ends the program as Ctrl-C does."""
    raise KeyboardInterrupt


def main() -> int:
    """Runs the command line and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", type=Path, help="the model repository: one folder for each model")
    parser.add_argument("--port", type=int, default=8000, help="HTTP port; gRPC and metrics get the next two ports")
    parser.add_argument("--gpus", default="", help="value for docker run --gpus, such as all")
    parser.add_argument("--debug", default="", metavar="MODEL", help="breakpoint() in this model waits for a client")
    arguments = parser.parse_args()
    repository = arguments.repository.resolve()
    if not any(repository.glob("*/config.pbtxt")):
        parser.error(f"{arguments.repository} isn't a model repository: no folder in it contains a config.pbtxt")
    if arguments.debug and not (repository / arguments.debug / "config.pbtxt").is_file():
        parser.error(f"{arguments.repository} has no model {arguments.debug}")
    signal.signal(signal.SIGTERM, stop)
    triton = Triton(repository, need_image(), arguments.port, arguments.gpus, arguments.debug)
    try:
        triton.wait()
        watched = changes(repository)
        first = next(watched)
        say(f"serving {arguments.repository} at {triton.url}; press Ctrl-C to stop")
        send_requests(triton, [])
        for changed in itertools.chain([first], watched):
            if not changed:
                continue
            if not triton.running():
                say("the server ended; its log is above")
                return 1
            reload(triton, models_of(changed, repository))
    except KeyboardInterrupt:
        pass
    finally:
        triton.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
