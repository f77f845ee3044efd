"""The credentials for Prometheus: read from files, for each request, and sent to one address only."""

from __future__ import annotations

from pathlib import Path

import pytest

from triton_operator.probe.credentials import headers
from triton_operator.probe.fetch import FetchError

URL = "https://thanos.example.com/prometheus"


def test_reads_the_token_or_the_password_for_each_request(tmp_path: Path) -> None:
    of = headers(URL + "/", str(tmp_path))
    (tmp_path / "username").write_text("operator\n")
    (tmp_path / "password").write_text("p@ss:wörd")
    assert of(URL) == {"Authorization": "Basic b3BlcmF0b3I6cEBzczp3w7ZyZA=="}
    (tmp_path / "token").write_text("abc\n")
    assert of(URL) == {"Authorization": "Bearer abc"}
    (tmp_path / "token").write_text("def")
    assert of(URL) == {"Authorization": "Bearer def"}


@pytest.mark.parametrize("url", ["http://prometheus.tenant.svc:9090", "https://thanos.example.com", URL + "x"])
def test_sends_nothing_to_another_prometheus(url: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc")
    assert headers(URL, str(tmp_path))(url) == {}
    assert headers("", str(tmp_path))(url) == {}
    assert headers(URL, "")(URL) == {}


def test_an_error_names_the_setting_and_not_the_content(tmp_path: Path) -> None:
    (tmp_path / "username").write_text("operator")
    with pytest.raises(FetchError, match="PROMETHEUS_CREDENTIALS can't be read: No such file or directory"):
        headers(URL, str(tmp_path))(URL)
    (tmp_path / "token").write_bytes(b"secret \xff")
    with pytest.raises(FetchError, match="can't be read: UnicodeDecodeError"):
        headers(URL, str(tmp_path))(URL)
