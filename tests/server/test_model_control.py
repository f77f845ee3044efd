"""What `kubectl triton models`, `load`, `unload` and `reload` do to a real Triton while clients send requests."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from kubectl_triton.forward import ServerError
from kubectl_triton.models import model_text, triton
from kubectl_triton.models.triton import Triton
from model_images.support import DETECTION, Server, serving

pytestmark = pytest.mark.server

ECHO = Path(__file__).parents[1] / "e2e" / "images" / "echo"
CLIENTS = 4
SLOW_SECONDS = 3
PIPE = """
name: "pipe" platform: "ensemble"
input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
ensemble_scheduling { step [ {
  model_name: "step" model_version: -1
  input_map { key: "INPUT" value: "INPUT" } output_map { key: "OUTPUT" value: "OUTPUT" }
} ] }
"""


@dataclass(frozen=True)
class Site:
    """A server with explicit model control, and its repository, which the tests change."""

    server: Server
    repository: Path

    def write(self, name: str, variant: str, *, fails: bool = False) -> None:
        """Writes the files of an echo model that loads slowly. It answers with `variant` and a number for each load."""
        folder = self.repository / name
        shutil.copytree(ECHO / "repository" / "echo", folder, dirs_exist_ok=True)
        settings = (folder / "config.pbtxt").read_text().replace('"echo"', f'"{name}"')
        (folder / "config.pbtxt").write_text(settings)
        (folder / "1" / "variant.txt").write_text(variant)
        program = (ECHO / "repository" / "echo" / "1" / "model.py").read_text()
        first = f"        import time; time.sleep({SLOW_SECONDS})\n        text ="
        program = program.replace("        text =", first).replace(
            "text.encode()", "f'{text} {time.time_ns()}'.encode()"
        )
        if fails:
            program = (ECHO / "changes" / "raises" / "echo" / "1" / "model.py").read_text()
        (folder / "1" / "model.py").write_text(program)

    @contextmanager
    def triton(self) -> Iterator[Triton]:
        with triton.connect(self.server.grpc) as client:
            yield client


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("repository")
    root.parent.chmod(0o755)
    root.chmod(0o755)
    for name in ("echo", "other", "step"):
        Site(None, root).write(name, "v1")  # type: ignore[arg-type]
    (root / "pipe" / "1").mkdir(parents=True)
    (root / "pipe" / "config.pbtxt").write_text(PIPE)
    options = ["--model-control-mode=explicit", "--load-model=echo", "--exit-on-error=false"]
    with serving(root, options=options) as server:
        yield Site(server, root)


@dataclass
class Answers:
    """The answers that clients got: how often each variant, the errors, and the longest wait in seconds."""

    variants: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    slowest: float = 0.0


@contextmanager
def asking(address: str, module: Any, model: str = "echo") -> Iterator[Answers]:
    """Sends requests from several clients while the context lasts."""
    answers, stop, lock = Answers(), threading.Event(), threading.Lock()

    def ask() -> None:
        with module.InferenceServerClient(address) as client:
            while not stop.is_set():
                tensor = module.InferInput("INPUT", [1], "INT32")
                tensor.set_data_from_numpy(np.array([1], np.int32))
                start = time.monotonic()
                try:
                    variant = client.infer(model, [tensor]).as_numpy("VERSION")[0].decode()
                except InferenceServerException as error:
                    variant = f"error: {error}"
                with lock:
                    answers.slowest = max(answers.slowest, time.monotonic() - start)
                    if variant.startswith("error"):
                        answers.errors.append(variant)
                    else:
                        answers.variants[variant] += 1
                time.sleep(0.01)

    threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        time.sleep(0.5)
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("changed", [False, True])
def test_reload_loses_no_request(site: Site, protocol: str, changed: bool) -> None:
    module = {"grpc": tritonclient.grpc, "http": tritonclient.http}[protocol]
    variant = f"new-{protocol}"
    with asking(getattr(site.server, protocol), module) as answers, site.triton() as client:
        time.sleep(0.5)
        if changed:
            site.write("echo", variant)
        client.reload("echo", 60)
    assert answers.errors == []
    assert len(answers.variants) > 1, "the model wasn't loaded again"
    assert min(answers.variants.values()) > 5
    if changed:
        assert any(name.startswith(variant) for name in answers.variants)
    # The model loads for longer than this, so no request waited for it.
    assert answers.slowest < SLOW_SECONDS


def test_two_reloads_at_once_lose_no_request(site: Site) -> None:
    def reload() -> None:
        with site.triton() as client:
            client.reload("echo", 60)

    with asking(site.server.grpc, tritonclient.grpc) as answers, ThreadPoolExecutor() as pool:
        for future in [pool.submit(reload) for _ in range(2)]:
            future.result()
    assert answers.errors == []
    assert len(answers.variants) > 1, "the model wasn't loaded again"
    with site.triton() as client:
        assert client.state("echo") == "READY"


def test_reload_reads_a_changed_configuration_also_after_a_reload(site: Site) -> None:
    settings = site.repository / "echo" / "config.pbtxt"
    with site.triton() as client:
        client.reload("echo", 60)
        for count in (2, 1):
            text = re.sub(
                "instance_group .*", f"instance_group [ {{ kind: KIND_CPU count: {count} }} ]", settings.read_text()
            )
            settings.write_text(text)
            client.reload("echo", 60)
            assert triton.instances(client.config("echo")) == count


def test_a_version_that_does_not_load_leaves_the_old_one_serving(site: Site) -> None:
    with asking(site.server.grpc, tritonclient.grpc) as answers, site.triton() as client:
        site.write("echo", "broken", fails=True)
        with pytest.raises(ServerError, match="the weights are from Tuesday"):
            client.reload("echo", 60)
        assert client.state("echo") == "READY"
    assert answers.errors == []
    assert len(answers.variants) == 1
    site.write("echo", "repaired")
    with site.triton() as client:
        client.reload("echo", 60)


def test_load_and_unload_of_another_model_lose_no_request(site: Site) -> None:
    with asking(site.server.grpc, tritonclient.grpc) as answers, site.triton() as client:
        client.load("other", 60)
        assert client.state("other") == "READY"
        client.unload("other", 60)
        assert client.state("other") == "UNAVAILABLE"
    assert answers.errors == []


def test_lists_instances_and_steps(site: Site) -> None:
    with site.triton() as client:
        client.load("pipe", 60)
        rows = {row.name: row for row in client.models().rows}
    assert rows["echo"].state == "READY"
    assert rows["echo"].instances == 1
    assert rows["pipe"].instances is None
    assert rows["pipe"].steps == {"step"}
    assert rows["step"].state == "READY"


def test_triton_unloads_an_ensemble_with_its_step(site: Site) -> None:
    with site.triton() as client:
        client.load("pipe", 60)
        assert model_text.dependents("step", client.models().rows) == ["pipe"]
        client.unload("step", 60)
        assert client.state("pipe") == "UNAVAILABLE"


def test_reloads_the_models_of_the_detector_while_it_answers() -> None:
    options = ["--model-control-mode=explicit", "--load-model=detection"]
    picture = next((DETECTION / "samples").glob("*.jpg")).read_bytes()
    errors, answers, stop = list[str](), list[bytes](), threading.Event()

    def ask(address: str) -> None:
        with tritonclient.grpc.InferenceServerClient(address) as client:
            while not stop.is_set():
                tensor = tritonclient.grpc.InferInput("IMAGE", [1, 1], "BYTES")
                tensor.set_data_from_numpy(np.array([[picture]], np.object_))
                try:
                    answers.append(client.infer("detection", [tensor]).as_numpy("DETECTIONS")[0, 0])
                except InferenceServerException as error:
                    errors.append(str(error))

    with serving(DETECTION / "repository", options=options) as server, triton.connect(server.grpc) as client:
        thread = threading.Thread(target=ask, args=(server.grpc,))
        thread.start()
        try:
            for model in ("preprocess", "yolov5s", "postprocess", "detection"):
                client.reload(model, 60)
        finally:
            stop.set()
            thread.join()
        rows = client.models().rows
    assert errors == []
    assert len(answers) > 5
    assert set(answers) == {answers[0]}
    assert {row.name: row.state for row in rows} == dict.fromkeys(
        ("preprocess", "yolov5s", "postprocess", "detection"), "READY"
    )


def test_prints_the_configuration_that_triton_completed(site: Site) -> None:
    with site.triton() as client:
        text = model_text.configuration(client.config("echo"), "text")
    assert 'name: "echo_0"' in text  # the instance group has no name in config.pbtxt
    assert "count: 1" in text


def test_reports_a_model_that_does_not_exist(site: Site) -> None:
    ask: list[Callable[[Triton], object]] = [lambda c: c.load("nothing", 20), lambda c: c.config("nothing")]
    for request in ask:
        with site.triton() as client, pytest.raises(ServerError, match="nothing"):
            request(client)


def test_a_load_without_an_end_stops_at_the_deadline(site: Site) -> None:
    shutil.copytree(ECHO / "repository" / "echo", site.repository / "endless")
    settings = site.repository / "endless" / "config.pbtxt"
    settings.write_text(settings.read_text().replace('"echo"', '"endless"'))
    shutil.copy(ECHO / "changes" / "sleeps" / "echo" / "1" / "model.py", site.repository / "endless" / "1")
    with asking(site.server.grpc, tritonclient.grpc) as answers, site.triton() as client:
        with pytest.raises(ServerError, match="no answer within 2 s"):
            client.load("endless", 2)
        assert client.state("endless") == "LOADING"
    assert answers.errors == []


def test_a_server_without_explicit_control_refuses(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    Site(None, tmp_path).write("echo", "v1")  # type: ignore[arg-type]
    with serving(tmp_path) as server, triton.connect(server.grpc) as client:
        for act in (client.load, client.unload):
            with pytest.raises(ServerError) as refused:
                act("echo", 20)
            assert "modelControl" in model_text.failure(str(refused.value))


def test_reloads_a_model_of_any_configuration_on_a_server_that_ends_connections(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    Site(None, tmp_path).write("echo", "v1")  # type: ignore[arg-type]
    entries = "".join(
        f'parameters {{ key: "{number}" value {{ string_value: "{"x" * 4000}" }} }}\n' for number in range(100)
    )
    with (tmp_path / "echo" / "config.pbtxt").open("a") as settings:
        settings.write(entries)
    options = ["--model-control-mode=explicit", "--load-model=echo", "--grpc-max-connection-age=300"]
    with serving(tmp_path, options=options) as server, triton.connect(server.grpc) as client:
        for _ in range(4):
            client.reload("echo", 60)
            assert len(client.config("echo").parameters) == 100
            assert [row.state for row in client.models().rows] == ["READY"]
            time.sleep(0.5)
