"""What the container that shows processes makes of the looks at /proc, and its page."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from process_exporter.__main__ import Exporter
from process_exporter.look import Memory, parse
from process_exporter.models import loaded
from process_exporter.series import LABELS
from process_exporter.server_memory import ServerMemory
from process_exporter.usage import OTHER, SERVER, TICKS, Line, Usage

STUB = "/opt/tritonserver/backends/python/triton_python_backend_stub"
PRE, POST = Line("pre", "1", "pre_0_0"), Line("post", "1", "post_0_0")
FORKED = 64
MODELS = frozenset({b'nv_inference_request_success{model="pre",version="1"}'})
MIB = 1 << 20


def stub(instance: str, path: str = "/models/pre/1/model.py", program: str = STUB) -> tuple[str, ...]:
    return (program, path, "triton_region", "1", "2", "1", "/python", "4", instance, "DEFAULT")


@dataclass
class Process:
    """A process of the container. `cpu` and `waited`: seconds. `memory`: KiB of its own; None without Linux's words."""

    pid: int
    parent: int = 1
    command: Sequence[str] = ()
    cpu: float = 0
    waited: float = 0
    start: int = 1000
    flags: int = 0
    memory: int | None = 1000
    threads: int = 1
    name: bytes = b"x"
    state: str = "S"


@dataclass
class Container:
    """Writes looks as the start script does."""

    cgroup: Sequence[str] = ()
    processes: list[Process] = field(default_factory=lambda: [Process(1, 0, ("tritonserver",), threads=30)])

    def look(self) -> bytes:
        lines = [b"server 1", b"/proc/stat:btime 1700000000", *(line.encode() for line in self.cgroup)]
        for p in self.processes:
            if p.memory is not None:
                for kind, size in (("Anon", p.memory), ("File", 7), ("Shmem", 3)):
                    lines.append(f"/proc/{p.pid}/status:Rss{kind}:\t{size:8} kB".encode())
            else:
                lines.append(f"/proc/{p.pid}/status:VmRSS:\t5 kB".encode())
        for p in self.processes:
            after = [
                p.state,
                p.parent,
                1,
                1,
                0,
                -1,
                p.flags,
                0,
                0,
                0,
                0,
                round(p.cpu * TICKS / 2),
                round(p.cpu * TICKS / 2),
            ]
            after += [round(p.waited * TICKS), 0, 20, 0, p.threads, 0, p.start, 1, 1]
            text = f"{p.pid} (".encode() + p.name + b") " + " ".join(map(str, after)).encode()
            lines += [f"/proc/{p.pid}/stat:".encode() + line for line in text.split(b"\n")]
        for p in self.processes:
            lines += [f"==> /proc/{p.pid}/cmdline <==".encode(), b"".join(w.encode() + b"\0" for w in p.command), b""]
        return b"\n".join(lines) + b"\nend\n"

    def __getitem__(self, pid: int) -> Process:
        return next(p for p in self.processes if p.pid == pid)

    def add(self, *processes: Process) -> None:
        self.processes += processes

    def end(self, *pids: int) -> None:
        self.processes = [p for p in self.processes if p.pid not in pids]


@pytest.fixture
def container() -> Container:
    return Container()


@pytest.fixture
def usage(container: Container) -> Usage:
    """After a first look, which counts no CPU time."""
    container.add(Process(20, 1, stub("pre_0_0"), cpu=100))
    usage = Usage()
    see(usage, container)
    assert {line: use.cpu for line, use in usage.lines.items()} == {SERVER: 0, PRE: 0}
    return usage


def see(usage: Usage, container: Container) -> None:
    look = parse(container.look())
    assert look is not None
    usage.add(look)


def cpu(usage: Usage, container: Container) -> dict[Line, float]:
    """Returns the CPU times after another look."""
    see(usage, container)
    return {line: pytest.approx(use.cpu, abs=0.02) for line, use in usage.lines.items()}


def test_a_line_is_an_instance_of_a_model_with_its_processes(usage: Usage, container: Container) -> None:
    container[1].cpu, container[20].cpu = 5, 103
    container.add(
        Process(21, 20, stub("pre_0_0"), cpu=2, flags=FORKED, threads=2), Process(22, 21, ("ffmpeg",), cpu=1),
        Process(30, 1, stub("post_0_0", "/models/post/1/model.py"), cpu=4, start=2000),
        Process(40, 1, ("/busybox", "sh", "-c"), cpu=9),
    )  # fmt: skip
    assert cpu(usage, container) == {SERVER: 5, PRE: 6, POST: 4, OTHER: 9}
    assert usage.lines[PRE].threads == 4
    assert usage.lines[SERVER].threads == 30
    assert usage.lines[PRE].memory == {"anonymous": 3000 << 10, "file": 21 << 10, "shared": 9 << 10}
    assert usage.lines[PRE].started == 1700000010
    assert usage.lines[POST].started == 1700000020
    assert usage.lines[OTHER].started == 0


def test_tritonserver_has_no_time_of_models_for_which_it_has_waited(usage: Usage, container: Container) -> None:
    container[1].cpu, container[1].waited = 1, 500
    assert cpu(usage, container)[SERVER] == 1


def test_a_reload_counts_each_process_once(usage: Usage, container: Container) -> None:
    """The old and the new one run together for a while."""
    container[20].cpu = 104
    container.add(Process(25, 1, stub("pre_0_0"), cpu=2, start=5000))
    assert cpu(usage, container)[PRE] == 6
    assert usage.lines[PRE].started == 1700000050
    container[20].cpu, container[25].cpu = 105, 3
    assert cpu(usage, container)[PRE] == 8
    container.end(20)
    assert cpu(usage, container)[PRE] == 8
    container[25].cpu = 4
    assert cpu(usage, container)[PRE] == 9


def test_a_child_that_ends_counts_once(usage: Usage, container: Container) -> None:
    container.add(Process(21, 20, ("ffmpeg",), cpu=50))
    assert cpu(usage, container)[PRE] == 50
    container.end(21)
    # 3 s more until it ended, and another child that no look has seen.
    container[20].waited = 53 + 4
    assert cpu(usage, container)[PRE] == 57
    assert cpu(usage, container)[PRE] == 57


def test_a_child_for_which_nothing_waits_takes_no_time_of_its_parent(usage: Usage, container: Container) -> None:
    container.add(Process(21, 20, ("ffmpeg",), cpu=50))
    see(usage, container)
    container.end(21)
    container[20].cpu = 110
    assert cpu(usage, container)[PRE] == 60


@pytest.mark.parametrize(("command", "flags"), [(stub("pre_0_0"), FORKED), (("ffmpeg",), 0)])
def test_an_orphan_stays_in_its_line(usage: Usage, container: Container, command: tuple[str, ...], flags: int) -> None:
    container.add(Process(21, 20, command, cpu=50, flags=flags, start=3000))
    see(usage, container)
    container.end(20)
    container[21].parent = 1
    container[21].cpu = 51
    assert cpu(usage, container) == {SERVER: 0, PRE: 51}
    # It is no start of the model.
    assert usage.lines[PRE].started == 0


def test_a_process_that_ends_stays_in_its_line(usage: Usage, container: Container) -> None:
    container[20].command, container[20].memory = (), None
    assert cpu(usage, container) == {SERVER: 0, PRE: 0}
    container[20].state = "Z"
    assert cpu(usage, container) == {SERVER: 0, PRE: 0}


def test_a_number_that_is_used_again_is_another_process(usage: Usage, container: Container) -> None:
    container.end(20)
    container.add(Process(20, 1, stub("post_0_0", "/models/post/1/model.py"), cpu=3, start=9000))
    assert cpu(usage, container) == {SERVER: 0, POST: 3}


def test_a_server_that_restarts_continues(usage: Usage, container: Container) -> None:
    container[20].cpu, container[1].cpu = 107, 9
    see(usage, container)
    again = Container(
        processes=[
            Process(1, 0, ("tritonserver",), cpu=1, start=8000),
            Process(20, 1, stub("pre_0_0"), cpu=2, start=8100),
        ]
    )
    assert cpu(usage, again) == {SERVER: 10, PRE: 9}
    assert usage.lines[SERVER].started == 1700000080


@pytest.mark.parametrize(("path", "instance", "line"), [
    ("/models/0/pre/12/model.py", "pre_0_1", ("pre", "12", "pre_0_1")),
    ("/models/pre/1/other.py", "group.a_0", ("pre", "1", "group.a_0")),
    ("/opt/tritonserver/backends/vllm/model.py", "chat_0_0", ("chat", "", "chat_0_0")),
    ("/tmp/folderXYZ/1/model.py", "sent_1_0", ("sent", "1", "sent_1_0")),
    ("model.py", "a_0_0", ("a", "", "a_0_0")),
])  # fmt: skip
def test_the_model_of_a_process(container: Container, path: str, instance: str, line: tuple[str, ...]) -> None:
    container.add(Process(20, 1, stub(instance, path)))
    usage = Usage()
    see(usage, container)
    assert usage.lines.keys() == {SERVER, Line(*line)}


def test_two_processes_of_one_line_are_added_up(container: Container) -> None:
    """Two repositories may have a model of the same name."""
    container.add(Process(20, 1, stub("pre_0_0"), cpu=9), Process(21, 1, stub("pre_0_0"), cpu=5))
    usage = Usage()
    see(usage, container)
    container[21].cpu = 6
    assert cpu(usage, container)[PRE] == 1
    assert usage.lines[PRE].memory["anonymous"] == 2000 << 10


def test_without_linux_words_there_is_no_memory(container: Container) -> None:
    """gVisor's /proc has no RssAnon."""
    container[1].memory = None
    usage = Usage()
    see(usage, container)
    assert usage.lines[SERVER].memory == {}


@pytest.mark.parametrize("name", [b"a) (b", b"\n1 (", b"1 (x) S 1 1 1", b"\xff\xfe", b"", b"x)\n"])
def test_a_name_may_be_anything(usage: Usage, container: Container, name: bytes) -> None:
    container.add(Process(21, 20, ("x",), cpu=4, name=name))
    assert cpu(usage, container) == {SERVER: 0, PRE: 4}


@pytest.mark.parametrize("word", [
    "==> /proc/1/cmdline <==\n" + "\0".join(stub("evil_0_0")), "\n==> /proc/999/cmdline <==\n", "\nend\n",
    "\n/proc/1/stat:1 (x) S 0", "\n/proc/1/status:RssAnon:\t9 kB", "server 20\n", "\nx\n==> /proc/20/cmdline <==\nx",
])  # fmt: skip
def test_a_command_line_may_be_anything(usage: Usage, container: Container, word: str) -> None:
    container.add(Process(30, 20, ("x", word, "y"), cpu=4))
    assert cpu(usage, container) == {SERVER: 0, PRE: 4}
    assert usage.lines[SERVER].memory["anonymous"] == 1000 << 10


def test_parents_in_a_circle_are_no_model(usage: Usage, container: Container) -> None:
    container.add(Process(30, 31, ("a",)), Process(31, 30, ("b",)))
    see(usage, container)
    assert usage.lines.keys() == {SERVER, PRE, OTHER}


def test_an_incomplete_look_is_none(container: Container) -> None:
    whole = container.look()
    assert parse(whole)
    # All but the byte after the last line.
    assert [size for size in range(len(whole)) if parse(whole[:size])] == []


@pytest.mark.parametrize("data", [b"", b"end\n", b"\nend\n", b"server 1\n\nend\n", os.urandom(1000) + b"\nend\n"])
def test_something_else_is_no_look(data: bytes) -> None:
    assert parse(data) is None


V2 = ["/sys/fs/cgroup/memory.max:1073741824", *(f"/sys/fs/cgroup/memory.stat:{line}" for line in (
    "anon 300", "file 9", "kernel_stack 20", "slab_reclaimable 7", "slab_unreclaimable 5", "shmem 4000",
    "anon_thp 100", "inactive_anon 77",
))]  # fmt: skip
V1 = [f"/sys/fs/cgroup/memory/memory.stat:{line}" for line in (
    "cache 4009", "rss 300", "rss_huge 0", "shmem 4000", "hierarchical_memory_limit 1073741824", "total_cache 4009",
    "total_rss 310", "total_shmem 4010",
)]  # fmt: skip


@pytest.mark.parametrize(("cgroup", "memory"), [
    (V2, Memory(4325, 1 << 30)),
    (["/sys/fs/cgroup/memory.max:max", *V2[1:]], Memory(4325, None)),
    (V1, Memory(4320, 1 << 30)),
    ([line.replace("1073741824", "9223372036854771712") for line in V1], Memory(4320, None)),
    (V2[:1], None),
    ((), None),
])  # fmt: skip
def test_the_memory_of_the_container(container: Container, cgroup: list[str], memory: Memory | None) -> None:
    container.cgroup = cgroup
    look = parse(container.look())
    assert look
    assert look.memory == memory


@pytest.mark.parametrize("name", [b"x\n/sys/fs/cgroup/memory.max:5", b"x\n/sys/fs/cgroup/memory.stat:anon 5"])
def test_a_process_says_nothing_of_the_container(container: Container, name: bytes) -> None:
    container.cgroup = V2
    container.add(Process(20, 1, ("x", name.decode()), name=name))
    look = parse(container.look())
    assert look
    assert look.memory == Memory(4325, 1 << 30)


@dataclass
class Grown:
    """A server of 1 GiB whose memory grows evenly by 100 MiB a minute."""

    container: Container
    memory: ServerMemory = field(default_factory=ServerMemory)
    at: int = 0

    def look(self, minutes: float, models: frozenset[bytes] | None = MODELS) -> float | None:
        """Returns what is said after looks for this number of minutes."""
        for _ in range(round(minutes * 4)):
            self.at += 15
            stat = f"/sys/fs/cgroup/memory.stat:anon {round((300 + 100 * self.at / 60) * MIB)}"
            self.container.cgroup = [f"/sys/fs/cgroup/memory.max:{1 << 30}", stat]
            look = parse(self.container.look())
            assert look
            self.memory.add(self.at, look, models)
        return self.memory.full_time


def test_a_server_is_observed_from_the_load_of_its_models_on(container: Container) -> None:
    loading = Grown(container)
    assert loading.look(7, None) is None
    assert loading.look(0.25) is None
    ready = Grown(container)
    ready.look(7)
    assert ready.memory.full_time == pytest.approx(60 * (1024 - 300) / 100, rel=0.1)


@pytest.mark.parametrize("change", ["models", "server"])
def test_another_model_or_server_begins_anew(container: Container, change: str) -> None:
    grown = Grown(container)
    assert grown.look(6.5)
    if change == "server":
        container[1].start = 9999
        assert grown.look(0.25, None) is None
        assert grown.look(0.25) is None
    else:
        assert grown.look(0.25, frozenset()) is None


def test_a_server_that_does_not_answer_for_a_while_is_still_observed(container: Container) -> None:
    grown = Grown(container)
    grown.look(3)
    assert grown.look(3.5, None)


def test_without_a_limit_there_is_no_forecast(container: Container) -> None:
    grown = Grown(container)
    assert grown.look(6.5)
    container.cgroup = [V2[1]]
    look = parse(container.look())
    assert look
    grown.memory.add(grown.at, look, MODELS)
    assert grown.memory.full_time is None
    assert grown.memory.now == Memory(300, None)


PAGE = b"""# HELP nv_inference_request_success x
nv_inference_request_success{model="a b",version="1"} 3
nv_inference_request_failure{model="c",version="1"} 3
nv_inference_request_success{model="b\\"} 1",version="2"} 0
"""


@contextmanager
def server(*parts: bytes, seconds: float = 0) -> Iterator[int]:
    """Gives the port of a server that sends these parts, with so much time between them, to one client."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with contextlib.suppress(OSError):
                client, _ = listening.accept()
                with client:
                    client.recv(1000)
                    for part in parts:
                        client.sendall(part)
                        time.sleep(seconds)

        thread = threading.Thread(target=answer)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(60)


OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


def test_the_models_are_those_of_the_page() -> None:
    with server(OK, PAGE) as port:
        found = loaded(port)
    assert found == {
        b'nv_inference_request_success{model="a b",version="1"}',
        b'nv_inference_request_success{model="b\\"} 1",version="2"}',
    }
    with server(OK) as port:
        assert loaded(port) == frozenset()


@pytest.mark.parametrize("answer", [
    b"", b"\n" * 70_000, b"HTTP/1.1 404 Not Found\r\n\r\n" + PAGE, b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n" + PAGE, b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n" * 200,
])  # fmt: skip
def test_another_answer_says_nothing_of_the_models(answer: bytes) -> None:
    with server(answer) as port:
        assert loaded(port) is None


def test_a_closed_port_says_nothing_of_the_models() -> None:
    with server() as port:
        loaded(port)
    assert loaded(port) is None


def test_an_answer_has_a_limit_of_time_and_size() -> None:
    with server(OK, *[b"x"] * 40, seconds=0.2) as port:
        began = time.monotonic()
        assert loaded(port) is None
        assert time.monotonic() - began < 6
    with server(OK, *[b"x" * MIB] * 20) as port:
        assert loaded(port) is None


def page(exporter: Exporter) -> dict[tuple[str, ...], float]:
    """Returns the samples of the page by their name and labels."""
    registry = CollectorRegistry()
    registry.register(exporter)
    text = generate_latest(registry).decode()
    families = text_string_to_metric_families(text)
    names = (*LABELS, "kind")
    return {
        (s.name, *(s.labels[n] for n in names if n in s.labels)): s.value for family in families for s in family.samples
    }


WORKS = ("triton_process_works",)


def write(file: Path, data: bytes, age: float = 0) -> None:
    file.write_bytes(data)
    at = time.time() - age
    os.utime(file, (at, at))


def test_the_page_has_the_newest_look(container: Container, tmp_path: Path) -> None:
    container.add(Process(20, 1, stub('a"\\b_0_0', "/tmp/x")))
    container.cgroup = V2
    exporter = Exporter(tmp_path / "look", lambda: MODELS)
    exporter.step()
    assert page(exporter) == {WORKS: 0}
    write(tmp_path / "look", container.look(), age=10)
    exporter.step()
    container[20].cpu = 7
    write(tmp_path / "look", container.look())
    exporter.step()
    exporter.step()
    found, labels = page(exporter), ('a"\\b', "", 'a"\\b_0_0')
    assert found[WORKS] == 1
    assert found["triton_process_cpu_seconds_total", *labels] == 7
    assert found["triton_process_resident_memory_bytes", *labels, "anonymous"] == 1000 << 10
    assert found["triton_process_threads", "", "", "tritonserver"] == 30
    assert found["triton_process_start_time_seconds", "", "", "tritonserver"] == 1700000010
    assert found["triton_container_memory_used_bytes",] == 4325
    assert found["triton_container_memory_limit_bytes",] == 1 << 30
    assert not [name for name, *_ in found if name.endswith("full_time_seconds")]


@pytest.mark.parametrize("what", ["old", "cut", "link", "pipe", "folder", "gone"])
def test_without_a_look_the_page_has_no_process(container: Container, tmp_path: Path, what: str) -> None:
    file, exporter = tmp_path / "look", Exporter(tmp_path / "look", lambda: MODELS)
    write(file, container.look())
    exporter.step()
    assert page(exporter)[WORKS] == 1
    file.unlink()
    match what:
        case "old":
            write(file, container.look(), age=61)
        case "cut":
            write(file, container.look()[:-10])
        case "link":
            write(tmp_path / "other", container.look())
            file.symlink_to(tmp_path / "other")
        case "pipe":
            os.mkfifo(file)
        case "folder":
            file.mkdir()
    exporter.step()
    assert page(exporter) == {WORKS: 0}
