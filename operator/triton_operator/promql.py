"""Builds PromQL expressions, with quoting."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

Rule = dict[str, Any]

PER_MODEL = "namespace, tritonmodel"
"""Labels of every series of a TritonModel. The rules join series by them."""


@dataclass(frozen=True)
class Scope:
    """The series of one TritonModel. Each selector contains its namespace and its name.

    `matchers`: further ones of each selector, such as those of some of its servers.
    """

    namespace: str
    name: str
    matchers: tuple[str, ...] = ()

    def pick(self, metric: str, *matchers: str) -> str:
        """Returns a selector for the TritonModel's series of `metric` that satisfy `matchers` (see `equal`)."""
        own = (equal("namespace", self.namespace), equal("tritonmodel", self.name), *self.matchers)
        return f"{metric}{{{', '.join((*own, *matchers))}}}"

    def pick_named(self, metric: str, *matchers: str) -> str:
        """Like `pick`, for a metric with any name, such as PromQL's keywords `nan` and `on`."""
        return self.pick("", equal("__name__", metric), *matchers)


def equal(label: str, value: str) -> str:
    return f"{label}={quote(value)}"


def unequal(label: str, value: str) -> str:
    return f"{label}!={quote(value)}"


def one_of(label: str, *plain: str) -> str:
    """Returns a matcher for several values, which must have no special characters of regular expressions."""
    return f"{label}=~{quote('|'.join(plain))}"


def none_of(label: str, *plain: str) -> str:
    """Returns a matcher for all but several values, which must have no special characters of regular expressions."""
    return f"{label}!~{quote('|'.join(plain))}"


def begins(label: str, text: str) -> str:
    """Returns a matcher for the values that begin with a text, such as a name of Kubernetes."""
    return f"{label}=~{quote(re.escape(text) + '.+')}"


def quote(text: str) -> str:
    """Returns a PromQL string. Names of Triton's models may have any characters except white space and slashes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda m: f"\\u{ord(m[0]):04x}", escaped) + '"'


def tag(expr: str, label: str, value: str, *, only_without: bool = False) -> str:
    """Returns `expr` with `label` set to `value`, so that `or` and aggregations treat it as a separate series.

    `only_without`: only series without the label get it.
    """
    source = quote(label) if only_without else '""'
    return f'label_replace({expr}, {quote(label)}, {quote(value.replace("$", "$$"))}, {source}, "")'


def number(value: float) -> str:
    """Returns a literal that Prometheus parses as exactly `value`."""
    return "Inf" if math.isinf(value) else repr(float(value))


def rate(series: str, span: str) -> str:
    """Returns the rate of a counter.

    A server's NaN or infinity counts as no sample, because sums keep it for days.
    """
    return f"(rate({series}[{span}]) >= 0 < Inf)"


def duration(seconds: int) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def window(min_seconds: int, scrape_seconds: int) -> str:
    """Returns a range of at least `min_seconds` that has two samples, even if scrapes are rare and one fails."""
    return duration(max(min_seconds, 4 * scrape_seconds))


def record(name: str, expr: str, **labels: str) -> Rule:
    return {"record": name, "expr": expr, **({"labels": labels} if labels else {})}


def escape_template(text: str) -> str:
    """Escapes text so that Prometheus doesn't evaluate it as a template, which, if invalid, makes all rules invalid."""
    return re.sub(r"{{", '{{"{{"}}', text)
