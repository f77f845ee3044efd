"""The checks of hack/prose.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack import prose

URL = "localhost:8000/v2/models/a/infer"
TYPE = "-H 'Content-Type: application/octet-stream'"


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (f"curl --data-binary @a.jpg {URL}", 4),
        (f"$ curl -s {URL} \\\n  -H 'Accept: */*' \\\n  -d '{{}}'", 4),
        (f"true\ncurl --data @a {URL}\ncurl {TYPE} {URL}", 5),
        (f"curl --data-binary @a.jpg {TYPE} {URL}", 0),
        (f"curl {URL} -d '{{}}' \\\n  {TYPE}", 0),
        (f"curl {URL}", 0),
        ("curl -d x https://example.com/", 0),
    ],
)
def test_examples_of_curl_name_the_type_of_the_body(tmp_path: Path, command: str, line: int) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n```sh\n{command}\n```\n")
    problems = [problem.partition(f"{page.name}:")[2] for problem in prose.check(page)]
    assert problems == ([f"{line}: curl would send a form: add -H 'Content-Type: …'"] if line else [])
