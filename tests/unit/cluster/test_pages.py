"""The limit of list requests."""

from __future__ import annotations

import itertools
import random

import pytest

from triton_operator.cluster import pages
from triton_operator.cluster.shallow import MAX_BYTES


def test_requests_fewer_objects_after_a_page_that_is_too_large() -> None:
    limits = [pages.MAX_LIMIT]
    while limits[-1] > 1:
        limits.append(pages.smaller(limits[-1]))
    assert limits == [100, 25, 6, 1]
    assert pages.smaller(1) == 1


@pytest.mark.parametrize(
    ("limit", "count", "size", "expected"),
    [(100, 100, 100_000, 100), (100, 100, 1_000_000, 78), (25, 25, 500_000, 39), (1, 1, 5_000, 4), (1, 1, 1_500_000, 1),
     (100, 0, 100, 1), (100, 3, 10, 100)],
)  # fmt: skip
def test_next_page_has_about_three_quarters_of_the_maximum_size(
    limit: int, count: int, size: int, expected: int
) -> None:
    assert pages.next_limit(limit, count, size) == expected


@pytest.mark.parametrize("seed", range(20))
def test_lists_objects_of_any_size_in_pages_below_the_maximum(seed: int) -> None:
    chance = random.Random(seed)
    sizes = [chance.choice((300, 5_000, 20_000, 900_000, 1_500_000)) for _ in range(300)]
    limit, place, requests = pages.MAX_LIMIT, 0, 0
    while place < len(sizes):
        page = sizes[place : place + limit]
        requests += 1
        if limit > 1 and sum(page) > MAX_BYTES:
            limit = pages.smaller(limit)
            continue
        assert len(page) == 1 or sum(page) <= MAX_BYTES
        place += len(page)
        limit = pages.next_limit(limit, len(page), sum(page))
    assert requests < 3 * len(sizes)


def test_lists_ordinary_objects_in_large_pages() -> None:
    limit, left, requests = pages.MAX_LIMIT, 1000, 0
    for requests in itertools.count(1):  # noqa: B007
        count = min(limit, left)
        if count * 19_000 > MAX_BYTES:
            limit = pages.smaller(limit)
            continue
        left -= count
        if not left:
            break
        limit = pages.next_limit(limit, count, count * 19_000)
    assert requests < 30
