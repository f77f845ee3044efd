"""Decides which part of the requests Triton traces. Pure: the caller reads the clock and the setting."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from typing import Any

PER_SECOND = 10.0
"""How many requests are traced per second at the highest load of the last minutes. Over five minutes the P99 then has
the 30 slowest of 3,000 above it."""
LOST_PER_SECOND = 0.1
"""How many traces Triton may lose per second. It writes none of a request that it refuses, e.g. for a wrong shape, and
keeps 1.6 KiB of memory for each (2.51): with this number 13 MiB a day."""
REMEMBERED = 300
"""Number of looks whose loads are remembered. There is one per second. A rate for the load of this moment would be 1 in
each pause, so that Triton traced the beginning of a burst only."""
BATCH = 1000
"""How many requests Triton may trace until it gets a new number: without the sampler, it stops. The files of so many
requests are small."""
_LEFT = BATCH // 2
_VARIED_AFTER = 25
"""Traced requests after which the rate is varied. With a fixed one, Triton would trace always the same of requests that
alternate."""
_UNKNOWN = 4
"""Factor of a load that used up all traces before the look, so that it is at least as high."""
_MAX_RATE = 1_000_000
_FIRST, _SECOND = 3, 5
"""The smallest rates but 1. There are two, because requests may come in threes."""
_LONGEST = 60
"""Looks after which a trace that isn't written is lost. A longer request is taken for a lost one."""
_ENOUGH = 20
"""Traced requests from which on the share of lost traces is known."""


@dataclass(frozen=True)
class Setting:
    """Triton's trace setting.

    - `on`: whether it traces timestamps.
    - `rate`: it traces every `rate`-th request.
    - `left`: the number of requests that it may still trace.
    """

    on: bool = False
    rate: int = 1
    left: int = 0

    def body(self) -> dict[str, Any]:
        """Returns the fields that change the setting, as Triton's API expects them."""
        return {
            "trace_level": ["TIMESTAMPS"] if self.on else ["OFF"],
            "trace_rate": str(self.rate),
            "trace_count": str(self.left),
            "log_frequency": "1",
        }


def parse(answer: Any) -> Setting:
    """Returns the setting in an answer of Triton's API.

    Raises ValueError, with what to do, if Triton can't write traces to a file.
    """
    if not isinstance(answer, Mapping):
        raise ValueError("the answer of Triton's trace API isn't a JSON object")  # noqa: TRY004 - the content
    if answer.get("trace_mode", "triton") != "triton":
        raise ValueError("Triton's traces have the mode opentelemetry: remove --trace-config from spec.server.args")
    if not answer.get("trace_file"):
        raise ValueError("Triton has no file for its traces: remove --trace-config from spec.server.args")
    try:
        rate, left = int(answer["trace_rate"]), int(answer["trace_count"])
    except (KeyError, TypeError, ValueError):
        raise ValueError("the answer of Triton's trace API has no trace_rate and trace_count") from None
    return Setting(answer.get("trace_level") == ["TIMESTAMPS"], rate, left)


class Pace:
    """Finds the setting from what Triton has traced since the last look.

    `random`: varies the rate. `setting`: the last one that Triton got, with what is left of it.
    """

    def __init__(self, random: Random | None = None) -> None:
        self.setting: Setting | None = None
        self._random = random or Random()  # noqa: S311 - no secret
        self._loads: deque[float] = deque(maxlen=REMEMBERED)
        self._traced: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)
        self._since_change = 0

    def look(self, now: Setting, seconds: float, files: int) -> Setting | None:
        """Returns the setting that Triton should get; None if the present one is suitable.

        `seconds`, `files`: the time since the last look, and the traces that Triton has written in it.
        """
        if self.setting is None:
            # Another sampler, in a container before this one, may have found the rate.
            self.setting = Setting(rate=now.rate if now.on and now.rate > 0 else 1)
        known = self.setting
        if not now.on or now.rate != known.rate or not 0 <= now.left <= known.left:
            # The server has restarted, or a client has changed the setting.
            return replace(known, on=True, left=BATCH)
        used = known.left - now.left
        self.setting = now
        self._since_change += used
        self._loads.append(used * now.rate / seconds * (1 if now.left else _UNKNOWN))
        self._traced.append((used, files))
        suitable = max(1, math.ceil(max(self._loads) / self._per_second()))
        varied = suitable > 1 and self._since_change >= _VARIED_AFTER
        if not varied and suitable / 2 <= now.rate <= max(_SECOND, suitable * 2) and now.left >= _LEFT:
            return None
        return Setting(on=True, rate=self._vary(suitable), left=BATCH)

    def changed(self, setting: Setting) -> None:
        """Notes that Triton has got this setting."""
        self.setting, self._since_change = setting, 0

    def _per_second(self) -> float:
        used = sum(one for one, _ in islice(self._traced, max(0, len(self._traced) - _LONGEST)))
        lost = max(0, used - sum(files for _, files in self._traced)) / used if used >= _ENOUGH else 0.0
        return min(PER_SECOND, LOST_PER_SECOND / lost) if lost else PER_SECOND

    def _vary(self, rate: int) -> int:
        """Returns a prime number about `rate`, or 1: few sequences of requests repeat after so many."""
        if rate == 1:
            return 1
        rate, quarter = min(rate, _MAX_RATE), rate // 4
        number = self._random.randint(max(_FIRST, rate - quarter), max(_SECOND, rate + quarter))
        while any(number % divisor == 0 for divisor in range(2, math.isqrt(number) + 1)):
            number += 1
        return number


class Weights:
    """How many requests a traced one stands for: the rate when it began.

    The times are those of CLOCK_MONOTONIC in nanoseconds, which Triton's traces have, too.
    """

    def __init__(self) -> None:
        self._starts: deque[int] = deque(maxlen=2 * REMEMBERED)
        self._rates: deque[int] = deque(maxlen=2 * REMEMBERED)

    def change(self, at: int, rate: int) -> None:
        self._starts.append(at)
        self._rates.append(rate)

    def at(self, time: int) -> int:
        """Returns the weight of a request that began at `time`; the oldest known one for an earlier time."""
        if not self._rates:
            return 1
        return self._rates[max(0, bisect_right(self._starts, time) - 1)]
