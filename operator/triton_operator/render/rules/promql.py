"""PromQL from parts, quoted."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

Rule = dict[str, Any]

PER_MODEL = "namespace, tritonmodel"
"""The labels that every series of a TritonModel has, by which series are joined."""


@dataclass(frozen=True)
class Scope:
    """The series of one TritonModel. Each selector names its namespace and its name, so that the rules of two never
    meet, whatever else the Prometheus holds."""

    namespace: str
    name: str

    def pick(self, metric: str, *matchers: str) -> str:
        """The series of `metric` that belong to the TritonModel and fulfil `matchers` (see `equal`)."""
        own = (equal("namespace", self.namespace), equal("tritonmodel", self.name))
        return f"{metric}{{{', '.join((*own, *matchers))}}}"

    def pick_named(self, metric: str) -> str:
        """As `pick`, for a metric that a user has named: `nan`, `on` and others are words of PromQL."""
        return self.pick("", equal("__name__", metric))


def equal(label: str, value: str) -> str:
    return f"{label}={quote(value)}"


def unequal(label: str, value: str) -> str:
    return f"{label}!={quote(value)}"


def one_of(label: str, *plain: str) -> str:
    """A matcher for several values that hold nothing that a regular expression would take for more."""
    return f"{label}=~{quote('|'.join(plain))}"


def quote(text: str) -> str:
    """A PromQL string. Names of Triton's models may hold anything but white space and slashes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda m: f"\\u{ord(m[0]):04x}", escaped) + '"'


def tag(expr: str, label: str, value: str) -> str:
    """`expr` with `label` set to `value`, so that `or` and a following aggregation see it as a series of its own."""
    return f'label_replace({expr}, {quote(label)}, {quote(value.replace("$", "$$"))}, "", "")'


def number(value: float) -> str:
    """A literal that Prometheus reads as exactly `value`."""
    return "Inf" if math.isinf(value) else repr(float(value))


def duration(seconds: int) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def window(least: int, scrape_seconds: int) -> str:
    """A range of at least `least` seconds that still holds two samples when scrapes are rare and one is lost."""
    return duration(max(least, 4 * scrape_seconds))


def record(name: str, expr: str, **labels: str) -> Rule:
    return {"record": name, "expr": expr, **({"labels": labels} if labels else {})}


def escape_template(text: str) -> str:
    """Text that Prometheus shall not take for a template: one that can't be read makes it refuse all rules."""
    return re.sub(r"{{", '{{"{{"}}', text)
