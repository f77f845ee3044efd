"""The dashboard of what clients get: success, latency, demand and limit, error budget."""

from __future__ import annotations

from dashboards.parts import (
    LIMIT_CHANGED,
    LIMIT_COUNT,
    MODEL,
    NAMESPACE,
    OF_MODEL,
    TRITONMODEL,
    Choice,
    Dashboard,
    Panel,
    Query,
    Row,
    of_entry,
    rate,
    ratio,
)

BUDGET = "(1 - $objective / 100)"
ENTRY_ONLY = "Only the entry model counts: the steps of an ensemble would count each request again."


def quantile(q: str) -> str:
    """Returns the query of a latency quantile of the entry model on the slowest server, in seconds."""
    return f"max by ({OF_MODEL}) " + of_entry(f'nv_inference_request_summary_us{{{MODEL},quantile="{q}"}}') + " / 1e6"


def limit(more: str, kind: str = "max-qps", way: str = "") -> str:
    """Returns the query of a limit, which is empty for the value +Inf (no limit).

    `way` is `:live`, `:literal` or, for the effective value, empty.
    """
    return f'triton:threshold{way}{{kind="{kind}",{MODEL}{more}}} < Inf'


AVERAGE = ratio(
    of_entry(rate("nv_inference_request_duration_us")), of_entry(rate("nv_inference_request_success")), OF_MODEL
)
AS_BELOW = "Triton's quantile of the slowest server; see Latency."
QUANTILES_HOW = (
    "Triton's summary of the time of a request inside the server, over about the last minute. Quantiles can't be added "
    "up over servers, so this is the slowest server. The summary needs `--metrics-config=summary_latencies=true`; "
    "without it there is only the average. A server without requests has none."
)

DASHBOARD = Dashboard(
    "end-to-end",
    "Triton / End to end",
    "What the clients of one TritonModel get. " + ENTRY_ONLY,
    (NAMESPACE, TRITONMODEL, Choice("objective", "Objective, %", ("99.9", "99.5", "99", "99.95", "99.99", "95"))),
    (LIMIT_CHANGED, LIMIT_COUNT),
    (
        Row(
            "Now",
            (
                Panel(
                    "Success rate, 5 min",
                    "1 − `triton:error_ratio:5m`: the fraction of the last five minutes' requests that succeeded.",
                    "percentunit",
                    (Query(f"1 - triton:error_ratio:5m{{{MODEL}}}", "success"),),
                    kind="stat",
                    width=4,
                    levels=(0.999, 0.99),
                ),
                Panel("P50", AS_BELOW, "s", (Query(quantile("0.5"), "P50"),), kind="stat", width=4),
                Panel("P99", AS_BELOW, "s", (Query(quantile("0.99"), "P99"),), kind="stat", width=4),
                Panel(
                    "Utilization",
                    "`triton:utilization:ratio`; see Load against the limit.",
                    "percentunit",
                    (Query(f"triton:utilization:ratio{{{MODEL}}}", "of the limit"),),
                    kind="stat",
                    width=4,
                    levels=(0.75, 1),
                ),
                Panel(
                    "Budget burn, 1 h",
                    "See Error budget burn. At 14.4, a 30-day error budget lasts two days; this is a critical alert.",
                    "short",
                    (Query(f"triton:error_ratio:1h{{{MODEL}}}\n/ {BUDGET}", "× budget"),),
                    kind="stat",
                    width=4,
                    levels=(1, 14.4),
                ),
                Panel(
                    "Servers that are scraped",
                    "The sum of `up` over the TritonModel's pods.",
                    "short",
                    (Query(f"sum by (namespace, tritonmodel) (up{{{MODEL}}})", "servers"),),
                    kind="stat",
                    width=4,
                    levels=(1, 0.5),
                ),
            ),
        ),
        Row(
            "Load against the limit",
            (
                Panel(
                    "QPS and the limit",
                    "Served: `triton:my_qps_threshold:1m` (same as `triton:qps:rate1m`), successful requests per "
                    "second over the last minute, by version. Demand: `triton:demand:rate1m` summed over versions: "
                    "successes, failures and the growth of the queue, times the ensemble coefficient. Above capacity, "
                    "demand grows and served doesn't. The alert compares demand with the limit. Limit: "
                    "`triton:threshold`, the operator's live value, else its last, else the fallback value in the "
                    "rule. No line: no limit. " + ENTRY_ONLY,
                    "reqps",
                    (
                        Query(f"triton:qps:rate1m{{{MODEL}}}", "served {{model}} v{{version}}"),
                        Query(f"sum by (namespace, tritonmodel) (triton:demand:rate1m{{{MODEL}}})", "demand"),
                        Query(limit(',version=""'), "limit", line="limit"),
                        Query(limit(',version!=""'), "limit of v{{version}}", line="limit"),
                    ),
                    width=16,
                ),
                Panel(
                    "Utilization",
                    "`triton:utilization:ratio`: the largest of demand ÷ max-qps, each version's demand ÷ its own "
                    "limit, and tokens ÷ max-tps. Above 1 for 30 s an alert fires.",
                    "percentunit",
                    (
                        Query(f"triton:utilization:ratio{{{MODEL}}}", "utilization"),
                        Query("vector(1)", "limit", line="limit"),
                    ),
                    width=8,
                ),
                Panel(
                    "Tokens per second and the limit",
                    "`triton:tokens:rate1m`: the rate of the counter in `spec.monitoring.tokenCounter` over all "
                    "servers; empty if it isn't set. Limit: `max-tps`.",
                    "short",
                    (
                        Query(f"triton:tokens:rate1m{{{MODEL}}}", "tokens {{model}}"),
                        Query(limit("", "max-tps"), "limit", line="limit"),
                    ),
                    width=8,
                ),
                Panel(
                    "The limit by source",
                    "`triton:threshold:live` is the operator's metric, `triton:threshold:literal` the fallback value "
                    "in the PrometheusRule. The rules use the first; without it its last value for 5 minutes. They "
                    "differ for about a minute after a change; after 5 minutes an alert fires.",
                    "reqps",
                    (
                        Query(limit(',version=""', way=":live"), "live"),
                        Query(limit(',version=""', way=":literal"), "literal"),
                        Query(limit(',version!=""', way=":live"), "live, v{{version}}"),
                        Query(limit(',version!=""', way=":literal"), "literal, v{{version}}"),
                    ),
                    width=8,
                ),
                Panel(
                    "Alerts",
                    "Prometheus' series `ALERTS`: pending or firing.",
                    "short",
                    (Query(f"max by (alertname, alertstate) (ALERTS{{{MODEL}}})", "{{alertname}} {{alertstate}}"),),
                    kind="state-timeline",
                    width=8,
                ),
            ),
        ),
        Row(
            "Success",
            (
                Panel(
                    "Success rate",
                    "1 − `triton:error_ratio`: failures ÷ (successes + failures) of the entry model, over the last 5 "
                    "minutes and the last hour. Triton counts a failed request of an ensemble twice; the rules correct "
                    "that. Requests that Triton can't parse are in no counter. No line: no requests.",
                    "percentunit",
                    (
                        Query(f"1 - triton:error_ratio:5m{{{MODEL}}}", "5 min"),
                        Query(f"1 - triton:error_ratio:1h{{{MODEL}}}", "1 h"),
                    ),
                    width=8,
                    most=1,
                ),
                Panel(
                    "Failures by reason",
                    "The entry model's `nv_inference_request_failure`, per second, summed over servers, as Triton "
                    "counts: a failed request of an ensemble counts twice and has the reason OTHER. `corrected` is "
                    "`triton:failures:rate5m`, where it counts once.",
                    "reqps",
                    (
                        Query("sum by (reason) " + of_entry(rate("nv_inference_request_failure")), "{{reason}}"),
                        Query(f"triton:failures:rate5m{{{MODEL}}}", "corrected {{model}}"),
                    ),
                    width=8,
                ),
                Panel(
                    "Error budget burn",
                    "`triton:error_ratio` over each window ÷ (1 − objective). At 1 the error budget lasts exactly its "
                    "period. Critical alert: above 14.4 over 1 h and 5 min, or above 6 over 6 h and 30 min. Warning: "
                    "above 1 over 3 days and 6 h. Set the variable Objective to the TritonModel's "
                    "`spec.monitoring.objective`.",
                    "short",
                    tuple(
                        Query(f"triton:error_ratio:{window}{{{MODEL}}}\n/ {BUDGET}", window)
                        for window in ("5m", "30m", "1h", "6h", "3d")
                    ),
                    width=8,
                ),
            ),
        ),
        Row(
            "Latency",
            (
                Panel(
                    "Latency of the entry model",
                    "P50, P90 and P99: " + QUANTILES_HOW + " Average: `nv_inference_request_duration_us` ÷ "
                    "`nv_inference_request_success`, both summed over servers, so each request has the same weight. "
                    "Excludes the network and the client.",
                    "s",
                    (
                        Query(quantile("0.5"), "P50 v{{version}}"),
                        Query(quantile("0.9"), "P90 v{{version}}"),
                        Query(quantile("0.99"), "P99 v{{version}}"),
                        Query(f"{AVERAGE}\n/ 1e6", "average v{{version}}"),
                    ),
                ),
                Panel(
                    "P99 of each server",
                    "The same summary for each server. Shows whether one is slower than the others.",
                    "s",
                    (
                        Query(
                            "max by (pod) "
                            + of_entry(f'nv_inference_request_summary_us{{{MODEL},quantile="0.99"}}')
                            + " / 1e6",
                            "{{pod}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)
