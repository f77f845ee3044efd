"""What clients get: success, latency, load against the limit, the error budget."""

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
ENTRY_ONLY = "Only the entry model counts, the one that clients call: an ensemble's stages would count a request again."


def quantile(q: str) -> str:
    """A quantile of the entry model, in seconds, of the slowest server."""
    return f"max by ({OF_MODEL}) " + of_entry(f'nv_inference_request_summary_us{{{MODEL},quantile="{q}"}}') + " / 1e6"


def limit(more: str, kind: str = "max-qps", way: str = "") -> str:
    """A limit; none where there is none, which Prometheus has as infinity. `way`: how it came, else the one in "
    "force."""
    return f'triton:threshold{way}{{kind="{kind}",{MODEL}{more}}} < Inf'


AVERAGE = ratio(
    of_entry(rate("nv_inference_request_duration_us")), of_entry(rate("nv_inference_request_success")), OF_MODEL
)
AS_BELOW = "Triton's own quantile, of the slowest server; see Latency."
QUANTILES_HOW = (
    "Triton's own summary of a request's time inside the server, over about the last minute, of each server; quantiles "
    "can't be added up, so this is the slowest server's. Servers have summaries with "
    "`--metrics-config=summary_latencies=true`; without it there is only the average. A server without requests shows "
    "none."
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
                    "1 − `triton:error_ratio:5m`: the part of the last five minutes' requests that succeeded.",
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
                    "`triton:utilization:ratio`, see below.",
                    "percentunit",
                    (Query(f"triton:utilization:ratio{{{MODEL}}}", "of the limit"),),
                    kind="stat",
                    width=4,
                    levels=(0.75, 1),
                ),
                Panel(
                    "Budget burn, 1 h",
                    "As below. At 14.4 a thirty days' budget is gone in two days: that pages.",
                    "short",
                    (Query(f"triton:error_ratio:1h{{{MODEL}}}\n/ {BUDGET}", "times the even pace"),),
                    kind="stat",
                    width=4,
                    levels=(1, 14.4),
                ),
                Panel(
                    "Servers that are scraped",
                    "The sum of `up` over the TritonModel's pods, as Prometheus sees them.",
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
                    "Served: `triton:my_qps_threshold:1m` (alias `triton:qps:rate1m`), successful requests a second "
                    "over the last minute, of each version. Demand: `triton:demand:rate1m` added up over versions: "
                    "successes, failures and what queues up, times the ensemble coefficient; above capacity served "
                    "stays and demand goes on. It is the demand that is compared with the limit. Limit: "
                    "`triton:threshold`, the operator's live value, else its last, else the rule's literal. "
                    "No line: no limit. " + ENTRY_ONLY,
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
                    "limit, and tokens ÷ max-tps. Above 1 for 30 s is an alert.",
                    "percentunit",
                    (
                        Query(f"triton:utilization:ratio{{{MODEL}}}", "utilization"),
                        Query("vector(1)", "limit", line="limit"),
                    ),
                    width=8,
                ),
                Panel(
                    "Tokens a second and the limit",
                    "`triton:tokens:rate1m`: the counter that `spec.monitoring.tokenCounter` names, a second, over all "
                    "servers; empty where none is named. Limit: `max-tps`.",
                    "short",
                    (
                        Query(f"triton:tokens:rate1m{{{MODEL}}}", "tokens {{model}}"),
                        Query(limit("", "max-tps"), "limit", line="limit"),
                    ),
                    width=8,
                ),
                Panel(
                    "The limit, by its two ways",
                    "`triton:threshold:live` is what the operators expose, `triton:threshold:literal` what the "
                    "PrometheusRule carries. The rules take the first, and for 5 minutes its last value. They differ "
                    "for about a minute after a change; longer is an alert.",
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
                    "Prometheus' own series `ALERTS`: pending while the condition must still hold on, then firing.",
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
                    "minutes and the last hour. Triton counts a failed request of an ensemble twice; that is "
                    "corrected. Requests that Triton can't parse are counted nowhere. No line: no requests.",
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
                    "The entry model's `nv_inference_request_failure`, a second, summed up over servers, as Triton "
                    "counts: an ensemble's failed request counts twice and has the reason OTHER. `corrected` is "
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
                    "`triton:error_ratio` over each window ÷ (1 − objective). At 1 the budget lasts just as long as it "
                    "shall. Pages: above 14.4 over 1 h and 5 min, or above 6 over 6 h and 30 min; a ticket: above 1 "
                    "over 3 days and 6 h. The objective is chosen at the top: set it to the TritonModel's "
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
                    "`nv_inference_request_success`, both summed up over servers, so each request weighs the same. "
                    "Without the network and the client.",
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
                    "The same summary of each server by itself: whether one is slower than the others.",
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
