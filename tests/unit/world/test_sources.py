"""The choice of the source, downloads, and this machine's mirrors."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.world import machine
from hack.world.job import FailedError, Job
from hack.world.parts import base_images


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers /401 and /404 with that status, and every other path with 200 and a body."""

    def do_GET(self) -> None:
        code = {"/401": 401, "/404": 404}.get(self.path, 200)
        self.send_response(code)
        self.end_headers()
        self.wfile.write(
            b"a program"
            if self.path == "/tool"
            else b"d69ea8cda2433733c1ce02de65da8f48e6a3dbba6bb18876a2062908e54ef7cb  tool"
        )

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as http_server:
        threading.Thread(target=http_server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http_server.server_port}"
        http_server.shutdown()


@pytest.fixture(autouse=True)
def _no_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD", raising=False)


def test_counts_a_registry_that_requires_a_token_as_reachable(
    server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "probed", lambda: {"a": f"{server}/401", "b": f"{server}/200"})
    assert machine.unreachable() == []
    assert machine.source(tmp_path / "source") == "registry"


def test_names_all_unreachable_hosts_in_one_line(
    server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"a": f"{server}/200", "b": f"{server}/404", "c": "http://127.0.0.1:1/", "d": "http://nowhere.invalid/"}
    monkeypatch.setattr(machine, "probed", lambda: places)
    assert machine.source(tmp_path / "source") == "packages"
    output = capsys.readouterr().err
    assert "b, c, d can't be reached" in output
    assert len(output.splitlines()) == 1


def test_keeps_the_source_of_the_last_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "probed", lambda: pytest.fail("it sent a request"))
    (tmp_path / "source").write_text("packages")
    assert machine.source(tmp_path / "source") == "packages"


def test_the_variable_world_selects_the_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "probed", lambda: pytest.fail("it sent a request"))
    monkeypatch.setenv("WORLD", "registry")
    assert machine.source(tmp_path / "source") == "registry"
    monkeypatch.setenv("WORLD", "packages")
    assert machine.source(tmp_path / "source") == "packages"
    monkeypatch.setenv("WORLD", "docker")
    with pytest.raises(FailedError, match="WORLD=docker is invalid"):
        machine.source(tmp_path / "source")


def test_keeps_a_download_only_if_its_checksum_matches(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hack.world.settings.LOGS", tmp_path / "log")
    job = Job("download")
    job.download(f"{server}/tool", tmp_path / "tool", f"{server}/sums")
    assert (tmp_path / "tool").read_text() == "a program"
    with pytest.raises(FailedError, match="has the checksum"):
        job.download(f"{server}/other", tmp_path / "other", f"{server}/sums")
    assert not (tmp_path / "other").exists()
    with pytest.raises(FailedError, match="can't download"):
        job.download(f"{server}/404", tmp_path / "gone", f"{server}/sums")


@pytest.mark.parametrize(
    ("sources", "address"),
    [
        ("deb http://mirror.example/debian bookworm main\n", "http://mirror.example/debian"),
        ("deb [signed-by=/x.gpg arch=amd64] https://mirror.example/d bookworm main", "https://mirror.example/d"),
        (
            "# deb http://no.example/ x\nTypes: deb\nURIs: http://yes.example/debian\nSuites: bookworm",
            "http://yes.example/debian",
        ),
        ("deb cdrom:[Debian]/ bookworm main\ndeb http://a.example/debian-security x main", ""),
        ("", ""),
    ],
)
def test_finds_the_archive_in_the_apt_sources(sources: str, address: str) -> None:
    assert base_images.archive(sources) == address


def test_pip_conf_contains_the_index_settings_but_no_local_paths(tmp_path: Path) -> None:
    environ = {"PIP_INDEX_URL": "https://pypi.example/simple", "PIP_FIND_LINKS": str(tmp_path), "PIP_TIMEOUT": "30"}
    assert base_images.pip_conf(environ) == "[global]\nindex-url = https://pypi.example/simple\ntimeout = 30\n"
