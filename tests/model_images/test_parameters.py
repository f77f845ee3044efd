"""Request parameters and class names, without a server."""

import json
from pathlib import Path

import numpy as np
import pytest
from detections import MAX_CANDIDATES, Thresholds, select
from labels import read_labels
from parameters import ParameterError, requested

from model_images.support import DETECTION

DEFAULTS = Thresholds(score=0.25, iou=0.45, max_boxes=300)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, DEFAULTS),
        ({"confidence": 0.6}, DEFAULTS._replace(score=0.6)),
        ({"confidence": 0, "iou": 1, "top_k": 1}, Thresholds(0, 1, 1)),
        ({"confidence": "0.6", "top_k": "20"}, DEFAULTS._replace(score=0.6, max_boxes=20)),
        ({"top_k": 20.0}, DEFAULTS._replace(max_boxes=20)),
        ({"timeout": 3, "x-request-id": "7", "score": "nonsense"}, DEFAULTS),
    ],
)
def test_parameters_replace_the_defaults(values: dict[str, object], expected: Thresholds) -> None:
    assert requested(json.dumps(values), DEFAULTS) == expected
    assert type(requested(json.dumps(values), DEFAULTS).max_boxes) is int


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("confidence", 1.01, "confidence must be a number from 0 to 1, not 1.01"),
        ("confidence", -0.1, "confidence must be a number from 0 to 1, not -0.1"),
        ("confidence", "high", 'confidence must be a number from 0 to 1, not "high"'),
        ("confidence", "nan", 'confidence must be a number from 0 to 1, not "nan"'),
        ("iou", True, "iou must be a number from 0 to 1, not true"),
        ("iou", None, "iou must be a number from 0 to 1, not null"),
        ("top_k", 0, "top_k must be a whole number from 1 to 300, not 0"),
        ("top_k", 301, "top_k must be a whole number from 1 to 300, not 301"),
        ("top_k", 2.5, "top_k must be a whole number from 1 to 300, not 2.5"),
        ("top_k", "inf", 'top_k must be a whole number from 1 to 300, not "inf"'),
    ],
)
def test_refuses_invalid_parameters_with_their_name(name: str, value: object, words: str) -> None:
    with pytest.raises(ParameterError) as caught:
        requested(json.dumps({name: value}), DEFAULTS)
    assert str(caught.value) == words


def test_a_confidence_of_0_limits_the_candidates_and_keeps_the_best() -> None:
    rng = np.random.default_rng(0)
    rows = rng.random((25200, 85), dtype=np.float32)
    rows[:, :4] *= 640
    detections = select(rows, Thresholds(0, 1, 300))
    scores = rows[:, 4] * rows[:, 5:].max(axis=1)
    assert len(rows) > MAX_CANDIDATES
    np.testing.assert_allclose(detections.scores, np.sort(scores)[::-1][:300])


def test_reads_one_class_name_per_line(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_bytes("\ufeffosoba\r\nkřižovatka \r\n\r\n".encode())
    assert read_labels(path) == ["osoba", "křižovatka"]
    path.write_text("")
    assert read_labels(path) == []


def test_reports_the_line_of_a_missing_class_name(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    with pytest.raises(ValueError, match=r"can't read the class names from .*labels\.txt"):
        read_labels(path)
    path.write_text("circle\n\nstar\n")
    with pytest.raises(ValueError, match="line 2: a class has no name"):
        read_labels(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="can't read the class names"):
        read_labels(path)


def test_the_warm_up_data_is_a_sample_in_tritons_format() -> None:
    data = (DETECTION / "repository" / "preprocess" / "warmup" / "image").read_bytes()
    sample = (DETECTION / "samples" / "square.jpg").read_bytes()
    assert data == len(sample).to_bytes(4, "little") + sample
