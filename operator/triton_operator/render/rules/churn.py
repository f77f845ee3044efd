"""Which servers replace their series."""

from __future__ import annotations

from .promql import PER_MODEL

_PAGE = 1000
"""A page counts as at least this many series, so that small servers may load and unload models often."""
_FAST, _SLOW = ("1m", 2), ("1h", 20)
"""A window, and how many pages of new series a server may have in it.

A restart of Prometheus makes each page new once. It doesn't restart twice in one minute, and a Prometheus in
CrashLoopBackOff restarts less than 20 times in one hour.
"""


def series_churn(sample_limit: int, selector: str = 'tritonmodel!=""') -> str:
    """Returns an expression for the TritonModels with a server that replaces its series, by its number of new series.

    Compares the new series of each server with the size of its page. So new servers, rollouts and new models don't
    count: they add each series once. The size is at most `sample_limit`, because Prometheus also adds the series of a
    page that it then refuses, and counts only those within the limit as new.
    """
    least = min(_PAGE, sample_limit)
    parts = "\n  or\n".join(
        f"  sum_over_time(scrape_series_added{{{selector}}}[{window}]) > {pages} * clamp(\n"
        f"    max_over_time(scrape_samples_post_metric_relabeling{{{selector}}}[{window}]), {least}, {sample_limit})"
        for window, pages in (_FAST, _SLOW)
    )
    return f"max by ({PER_MODEL}) (\n{parts}\n)"
