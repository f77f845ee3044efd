"""The search of `kubectl triton calibrate` finds the capacity of the sample that streams, on a real Triton."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kubectl_triton.calibrate import load
from kubectl_triton.calibrate.search import TPOT, TTFT, Goal, Point, Step, limited, run, search
from model_images.language import copy
from model_images.support import RESTRICTIONS, load_generator, serving

pytestmark = pytest.mark.server

TOKENS_PER_SECOND, TOKENS = 120, 4
"""What the sample generates for all requests together, and the tokens of one answer: 30 requests/s."""


@pytest.fixture
def execute(tmp_path_factory: pytest.TempPathFactory, load_generator_image: str) -> Iterator[load.Run]:
    """Runs commands in the load generator's container, beside a server with the sample."""
    folder = tmp_path_factory.mktemp("models")
    folder.chmod(0o755)
    copy(folder / "language", tokens_per_second=str(TOKENS_PER_SECOND))
    with serving(folder) as server, load_generator(load_generator_image, server.container, *RESTRICTIONS) as execute:
        yield execute


def test_finds_the_capacity_of_the_sample_language(execute: load.Run) -> None:
    sampling = json.dumps({"max_tokens": TOKENS})
    text = {"text_input": ["Once there was"], "stream": [True], "sampling_parameters": [sampling]}
    execute(["sh", "-c", 'printf %s "$0" >/tmp/inputs.json', json.dumps({"data": [text]})], 30)
    sent = load.Load("language", "grpc", "/tmp/inputs.json", streams=True)
    goal = Goal({TTFT: 1.0, TPOT: 0.5}, precision=0.1)
    single = load.idle(sent, execute)
    assert load.impossible(goal, single) == ""
    assert load.answer_seconds(goal, single) == pytest.approx(1.0 + (TOKENS - 1) * 0.5)

    def measure(step: Step) -> Point:
        for _ in range(3):  # a busy machine may send late
            point = load.measure(sent, execute, replace(step, seconds=min(step.seconds, 12)))
            if not limited(point):
                break
        return point

    lines: list[str] = []
    outcome = run(search(goal, 8), measure, lambda step, point: lines.append(f"{step} {point}"))
    # `make bench NAME=calibrate` measures how exact it is. On a busy machine a server handles less.
    capacity = TOKENS_PER_SECOND / TOKENS
    assert capacity / 2 < outcome.rate < 1.15 * capacity, "\n".join([outcome.reason, *lines])
    assert outcome.tokens == pytest.approx(TOKENS * outcome.rate)
