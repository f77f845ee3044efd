"""The dashboard of what clients get: success rate, latency, load and limit, error budget."""

from __future__ import annotations

from dashboards.parts import (
    LIMIT_CHANGED,
    LIMIT_COUNT,
    MODEL,
    NAMESPACE,
    NOT_STREAMS,
    OF_MODEL,
    TRITONMODEL,
    UTILIZATION,
    Choice,
    Dashboard,
    Panel,
    Query,
    Row,
    measured,
    of_entry,
    rate,
    ratio,
    utilization,
)
from latency_sampler.series import REQUEST
from triton_operator.render.rules import latency as sampled
from triton_operator.render.rules.slo import RECORDED
from triton_operator.render.rules.streaming import BETWEEN_RESPONSES, CACHE, DURATION, FIRST_RESPONSE, STREAMS

BUDGET = "(1 - $objective / 100)"
ENTRY_ONLY = "Only the entrypoint counts: the composing models of an ensemble would count each request again."


def quantile(q: str) -> str:
    """Returns a query for a latency quantile of the entrypoint on the slowest server, in seconds."""
    summary = of_entry(f'nv_inference_request_summary_us{{{MODEL},quantile="{q}"}}')
    return f"max by ({OF_MODEL}) {measured(summary)} / 1e6"


def stream(series: str, q: str) -> str:
    """Returns a query for a quantile of the streams of all servers, in seconds."""
    return f'{series}{{{MODEL},quantile="{q}"}}'


def over_all(q: str) -> str:
    """Returns a query for a measured quantile of the entrypoint over all servers, in seconds."""
    return _of_entry(f'{sampled.DURATION}{{{MODEL},quantile="{q}"}}')


def latency(q: str) -> str:
    """Returns a query for a latency quantile, of the streams if the entrypoint streams."""
    parts = (_of_entry(stream(DURATION, q)), over_all(q), quantile(q))
    return "\nor on (namespace, tritonmodel) ".join(parts)


def _of_entry(series: str) -> str:
    """Restricts recorded series, which have no version, to the entrypoint."""
    return f"({series}\nand on (namespace, tritonmodel, model) tritonmodel:requests_served:rate1m{{{MODEL}}})"


def limit(more: str, kind: str = "max-qps", series: str = "tritonmodel:threshold:effective") -> str:
    """Returns a query for a limit, without the series whose value is infinity (no limit)."""
    return f'{series}{{kind="{kind}",{MODEL}{more}}} < Inf'


def live(more: str) -> str:
    """Returns a query for the limit that the operator exposes."""
    return f"max by (version) ({limit(more, series='triton_operator_threshold')})"


def fallback(more: str) -> str:
    """Returns a query for the limit in the PrometheusRule."""
    return limit(more, series="tritonmodel:threshold:fallback")


def error_ratio(window: str) -> str:
    """Returns a query for the error ratio. The rules record only some windows."""
    if window in RECORDED:
        return f"tritonmodel:error_ratio:rate{window}{{{MODEL}}}"
    failed, requests = (
        f"sum(sum_over_time(tritonmodel:{series}:rate5m{{{MODEL}}}[{window}]))"
        for series in ("requests_failed", "requests")
    )
    return f"({failed}\n/ ({requests} > 0))"


AVERAGE = ratio(
    measured(of_entry(rate("nv_inference_request_duration_us"))),
    of_entry(rate("nv_inference_request_success")),
    OF_MODEL,
)
_FIRST_RESPONSE = "nv_inference_first_response_histogram_ms"
_WITHIN = rate(f"{_FIRST_RESPONSE}_bucket", ',le!="+Inf"')
IN_TIME = (
    f"sum by (le) ({of_entry(_WITHIN)})\n"
    f"/ ignoring (le) group_left () (sum({of_entry(rate(f'{_FIRST_RESPONSE}_count'))}) > 0)"
)
AS_BELOW = (
    "The quantile over all servers with `spec.monitoring.latency`, else Triton's on the slowest server; or the "
    "duration of streams. See Latency and Streams."
)
MEASURED = "Needs `spec.monitoring.latency`. Of a sample of the requests, from Triton's traces."
QUANTILES_HOW = (
    "it is Triton's summary of the time of a request in the server, over about the last minute. Quantiles of several "
    "servers can't be added, so the panel shows the slowest server. Triton exposes summaries with "
    "`--metrics-config=summary_latencies=true`; without it only the average is shown. A server without requests has no "
    "value."
)

OWN_SERIES = "`spec.monitoring.streaming` names the series. Empty without it."


def times(title: str, series: str, what: str) -> Panel:
    """Returns a panel of the quantiles of streams."""
    return Panel(
        title,
        f"`{series}`: {what}, from the model's own histogram over the last minute and all servers. {OWN_SERIES}",
        "s",
        tuple(Query(stream(series, q), f"P{float(q) * 100:.0f} {{{{model}}}}") for q in ("0.5", "0.9", "0.99")),
        width=8,
    )


DASHBOARD = Dashboard(
    "end-to-end",
    "Triton / End to end",
    "Success rate, latency and load of one TritonModel, as its clients see them. " + ENTRY_ONLY,
    (NAMESPACE, TRITONMODEL, Choice("objective", "Objective, %", ("99.9", "99.5", "99", "99.95", "99.99", "95"))),
    (LIMIT_CHANGED, LIMIT_COUNT),
    (
        Row(
            "Now",
            (
                Panel(
                    "Success rate, 5 min",
                    "1 − `tritonmodel:error_ratio:rate5m`: the fraction of requests in the last 5 minutes that "
                    "succeeded.",
                    "percentunit",
                    (Query(f"1 - tritonmodel:error_ratio:rate5m{{{MODEL}}}", "success"),),
                    kind="stat",
                    width=4,
                    levels=(0.999, 0.99),
                ),
                Panel("P50", AS_BELOW, "s", (Query(latency("0.5"), "P50"),), kind="stat", width=4),
                Panel("P99", AS_BELOW, "s", (Query(latency("0.99"), "P99"),), kind="stat", width=4),
                Panel(
                    "Utilization",
                    "See Load and limit.",
                    "percentunit",
                    (Query(utilization(MODEL), "of the limit"),),
                    kind="stat",
                    width=4,
                    levels=(0.75, 1),
                ),
                Panel(
                    "Error budget burn, 1 h",
                    "See Success. At 14.4 the error budget of 30 days lasts 2 days; the alert pages.",
                    "short",
                    (Query(f"{error_ratio('1h')}\n/ {BUDGET}", "burn rate"),),
                    kind="stat",
                    width=4,
                    levels=(1, 14.4),
                ),
                Panel(
                    "Scraped servers",
                    "The sum of `up` over the TritonModel's pods: servers that Prometheus scrapes successfully.",
                    "short",
                    (Query(f"sum by (namespace, tritonmodel) (up{{{MODEL}}})", "servers"),),
                    kind="stat",
                    width=4,
                    levels=(1, 0.5),
                ),
            ),
        ),
        Row(
            "Load and limit",
            (
                Panel(
                    "QPS and limit",
                    "Served: `triton:my_qps_threshold:1m` (alias `tritonmodel:requests_served:rate1m`), "
                    "successful requests per second over the last minute, for each version. Demand: "
                    "`tritonmodel:demand:rate1m`: served and failed requests and the growth of the "
                    "queue, times the ensemble coefficient. Above the capacity of the servers, demand "
                    "keeps growing and served doesn't. The alerts compare demand with the limit. Limit: "
                    "`tritonmodel:threshold:effective`, the operator's accepted value or, if the metric "
                    "is missing, the fallback value. Without a limit there is no line. A burst of seconds shows "
                    "between two scrapes: `tritonmodel:demand:irate`, with the limit `max-qps-peak`. " + ENTRY_ONLY,
                    "reqps",
                    (
                        Query(f"tritonmodel:requests_served:rate1m{{{MODEL}}}", "served {{model}} v{{version}}"),
                        Query(f'tritonmodel:demand:rate1m{{version="",{MODEL}}}', "demand"),
                        Query(f"tritonmodel:demand:irate{{{MODEL}}}", "demand between two scrapes"),
                        Query(limit(',version=""'), "limit", line="limit"),
                        Query(limit("", "max-qps-peak"), "limit between two scrapes", line="limit"),
                        Query(limit(',version!=""'), "limit of v{{version}}", line="limit"),
                    ),
                    width=16,
                ),
                Panel(
                    "Utilization",
                    f"{UTILIZATION} An alert fires if it is above 1 for 30 s.",
                    "percentunit",
                    (
                        Query(utilization(MODEL), "utilization"),
                        Query("vector(1)", "limit", line="limit"),
                    ),
                    width=8,
                ),
                Panel(
                    "Tokens per second and limit",
                    "`tritonmodel:tokens:rate1m`: the rate of the counter in `spec.monitoring.tokenCounter`, summed "
                    "over servers, times the token coefficient. Empty if the field isn't set. Limit: `max-tps`.",
                    "short",
                    (
                        Query(f"tritonmodel:tokens:rate1m{{{MODEL}}}", "tokens {{model}}"),
                        Query(limit("", "max-tps"), "limit", line="limit"),
                    ),
                    width=8,
                ),
                Panel(
                    "Limit, live and fallback",
                    "Live: `triton_operator_threshold`, the accepted value that the operator exposes. Fallback: "
                    "`tritonmodel:threshold:fallback`, the fallback value in the PrometheusRule. The rules use the "
                    "live value, and its last value for 5 minutes after it disappears. After a change the two differ "
                    "for about a minute; an alert fires if they differ for longer.",
                    "reqps",
                    (
                        Query(live(',version=""'), "live"),
                        Query(fallback(',version=""'), "fallback"),
                        Query(live(',version!=""'), "live, v{{version}}"),
                        Query(fallback(',version!=""'), "fallback, v{{version}}"),
                    ),
                    width=8,
                ),
                Panel(
                    "Alerts",
                    "Prometheus' series `ALERTS`: pending until the expression has been true for the alert's `for`, "
                    "then firing.",
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
                    "1 − failures ÷ (successes + failures) of the entrypoint, over the last 5 "
                    "minutes and the last hour. Triton counts a failed request of an ensemble twice; the recording "
                    "rule corrects it. Triton doesn't count requests that it can't parse. Without requests there is "
                    "no line.",
                    "percentunit",
                    (
                        Query(f"1 - {error_ratio('5m')}", "5 min"),
                        Query(f"1 - {error_ratio('1h')}", "1 h"),
                    ),
                    width=8,
                    maximum=1,
                ),
                Panel(
                    "Failures by reason",
                    "The rate of the entrypoint's `nv_inference_request_failure`, summed over servers. Triton counts "
                    "a failed request of an ensemble twice, with the reason OTHER. `corrected` is "
                    "`tritonmodel:requests_failed:rate5m`, which counts it once.",
                    "reqps",
                    (
                        Query("sum by (reason) " + of_entry(rate("nv_inference_request_failure")), "{{reason}}"),
                        Query(f"tritonmodel:requests_failed:rate5m{{{MODEL}}}", "corrected {{model}}"),
                    ),
                    width=8,
                ),
                Panel(
                    "Error budget burn",
                    "The error ratio of each window ÷ (1 − objective). At 1 the error budget lasts exactly its "
                    "period. The alert pages above 14.4 over 1 h and 5 min, or above 6 over 6 h and 30 min. It opens a "
                    "ticket above 1 over 3 days and 6 h. Set the variable Objective to the TritonModel's "
                    "`spec.monitoring.objective`.",
                    "short",
                    tuple(
                        Query(f"{error_ratio(window)}\n/ {BUDGET}", window)
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
                    "Distribution of latency",
                    f"`{REQUEST}`: how many requests of the entrypoint took how long, over all servers. Over a week, "
                    f"each column is an hour. {MEASURED}",
                    "s",
                    (Query(f"sum by (le) ({of_entry(rate(f'{REQUEST}_bucket'))})", "{{le}}"),),
                    kind="heatmap",
                ),
                Panel(
                    "Slower than the objective",
                    f"`{sampled.SLOW}` ÷ `{sampled.TIMED}`: the share of requests that took longer than each objective "
                    "in `spec.monitoring.latency`, over five minutes. p99 allows 1 %.",
                    "percentunit",
                    (
                        Query(
                            f"{sampled.SLOW}{{{MODEL}}}\n/ ({sampled.TIMED}{{{MODEL}}} > 0)",
                            "{{kind}}",
                        ),
                    ),
                ),
                Panel(
                    "Latency of the entrypoint",
                    f"P50, P90 and P99. With `spec.monitoring.latency` `{sampled.DURATION}`: over the last five "
                    f"minutes and all servers, of a sample of the requests. Without it {QUANTILES_HOW} Average: "
                    "`nv_inference_request_duration_us` ÷ `nv_inference_request_success`, both summed over servers, so "
                    f"each request has the same weight. Excludes the network and the client. {NOT_STREAMS}",
                    "s",
                    (
                        *(
                            Query(
                                f"{over_all(q)}\nor on (namespace, tritonmodel) {quantile(q)}",
                                f"{name} {{{{version}}}}",
                            )
                            for name, q in (("P50", "0.5"), ("P90", "0.9"), ("P99", "0.99"))
                        ),
                        Query(f"{AVERAGE}\n/ 1e6", "average v{{version}}"),
                    ),
                    width=8,
                ),
                Panel(
                    "P99 of each server",
                    "The same for each server. It shows whether one server is slower than the others.",
                    "s",
                    (
                        Query(
                            "histogram_quantile(0.99, sum by (pod, le) ("
                            + measured(of_entry(f"rate({REQUEST}_bucket{{{MODEL}}}[5m])"))
                            + ")) >= 0\nor max by (pod) "
                            + measured(of_entry(f'nv_inference_request_summary_us{{{MODEL},quantile="0.99"}}'))
                            + " / 1e6",
                            "{{pod}}",
                        ),
                    ),
                    width=8,
                ),
                Panel(
                    "First response in time, over all servers",
                    f"`{_FIRST_RESPONSE}`: the share of requests whose first response came within each bound. A "
                    "histogram can be added, so this is true of all servers together. Its bounds are 100, 500, 2000 "
                    "and 5000 ms, unless `model_metrics` in the config.pbtxt of the entrypoint names others; a "
                    "quantile between two of them isn't known. It needs `--metrics-config=histogram_latencies=true` in "
                    "`spec.server.args` and a server from 26.01 on, or from 24.11 on for models that stream.",
                    "percentunit",
                    (Query(IN_TIME, "within {{le}} ms"),),
                    width=8,
                    maximum=1,
                ),
            ),
        ),
        Row(
            "Streams",
            (
                times("Time to first token", FIRST_RESPONSE, "the time from a request to its first response"),
                times("Time per token", BETWEEN_RESPONSES, "the time between two responses of a stream"),
                times("Duration of a stream", DURATION, "the time from a request to the end of its stream"),
                Panel(
                    "Open and waiting streams",
                    f"`{STREAMS}`: the model's own gauges, summed over servers. {OWN_SERIES}",
                    "short",
                    (Query(f"{STREAMS}{{{MODEL}}}", "{{state}} {{model}}"),),
                ),
                Panel(
                    "KV cache",
                    f"`{CACHE}`: the share of the KV cache that is in use, on the fullest server. {OWN_SERIES}",
                    "percentunit",
                    (Query(f"{CACHE}{{{MODEL}}}", "{{model}}"),),
                    maximum=1,
                ),
            ),
        ),
    ),
)
