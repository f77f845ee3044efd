"""The dashboard of the operator."""

from __future__ import annotations

from dashboards.parts import RATE, Dashboard, Mark, Panel, Query, Row, Variable

JOB = '{job="$job"}'
PROCESS = 'and on (job, instance) triton_operator_leading{job="$job"}'
WRITES = '{job="$job",verb=~"PATCH|POST|PUT|DELETE"}'


def quantile(q: float, series: str) -> str:
    return f"histogram_quantile({q}, sum by (le) (rate({series}_bucket{JOB}{RATE})))"


def servers(state: str) -> str:
    return f'max by (namespace, tritonmodel) (triton_operator_replicas{{job="$job",state="{state}"}})'


def average(series: str) -> str:
    return f"sum(rate({series}_sum{JOB}{RATE}))\n/\nsum(rate({series}_count{JOB}{RATE}))"


def times(title: str, series: str, how: str) -> Panel:
    """Returns the panel of a histogram: quantiles over all replicas of the operator, and the average."""
    return Panel(
        title,
        f"{how} P50 and P99 are estimates from the buckets of `{series}`, over all replicas of the operator; average: "
        "sum ÷ count.",
        "s",
        (
            Query(quantile(0.5, series), "P50"),
            Query(quantile(0.99, series), "P99"),
            Query(average(series), "average"),
        ),
        width=8,
    )


DASHBOARD = Dashboard(
    "operator",
    "Triton / Operator",
    "Whether the operator works, how busy it is, and the state of all TritonModels.",
    (Variable("job", "Job", "triton_operator_leading", "job"),),
    (
        Mark(
            "Limit changed",
            "Prometheus started to use another `max-qps` of any TritonModel. The tags of the mark contain the version.",
            f'changes(triton:threshold{{kind="max-qps"}}{RATE}) > 0',
            "max-qps of {{namespace}}/{{tritonmodel}}",
            "red",
        ),
    ),
    (
        Row(
            "Now",
            (
                Panel(
                    "Leaders",
                    "The sum of `triton_operator_leading`. After a leader dies it is 0 for about 15 s; if it stays 0, "
                    "no change of a TritonModel takes effect.",
                    "short",
                    (Query(f"sum(triton_operator_leading{JOB})", "leaders"),),
                    kind="stat",
                    width=6,
                    levels=(1, 0.5),
                ),
                Panel(
                    "Operators that are scraped",
                    "The number of targets that expose `triton_operator_leading`.",
                    "short",
                    (Query(f"count(triton_operator_leading{JOB})", "operators"),),
                    kind="stat",
                    width=6,
                    levels=(1, 0.5),
                ),
                Panel(
                    "TritonModels by Ready",
                    "`triton_operator_models` by the condition Ready; the largest value of the replicas.",
                    "short",
                    (Query(f"max by (ready) (triton_operator_models{JOB})", "Ready={{ready}}"),),
                    kind="stat",
                    width=6,
                ),
                Panel(
                    "Thresholds that can't be read",
                    "`triton_operator_thresholds_invalid`: invalid threshold annotations of all TritonModels. The last "
                    "valid value stays in effect.",
                    "short",
                    (
                        Query(
                            f"sum(max by (namespace, tritonmodel) (triton_operator_thresholds_invalid{JOB}))",
                            "annotations",
                        ),
                    ),
                    kind="stat",
                    width=6,
                    levels=(1, 1000),
                ),
            ),
        ),
        Row(
            "TritonModels",
            (
                Panel(
                    "TritonModels by Ready",
                    "`triton_operator_models` over time.",
                    "short",
                    (Query(f"max by (ready) (triton_operator_models{JOB})", "Ready={{ready}}"),),
                    width=8,
                    stacked=True,
                ),
                Panel(
                    "TritonModels with the highest utilization",
                    "The ten highest values of `triton:utilization:ratio`, demand ÷ limit.",
                    "percentunit",
                    (Query("topk(10, triton:utilization:ratio)", "{{namespace}}/{{tritonmodel}}"),),
                    width=8,
                ),
                Panel(
                    "Missing servers",
                    "`triton_operator_replicas`, wanted − ready, of each TritonModel.",
                    "short",
                    (
                        Query(
                            f"{servers('wanted')}\n-\n{servers('ready')}",
                            "{{namespace}}/{{tritonmodel}}",
                        ),
                    ),
                    width=8,
                ),
            ),
        ),
        Row(
            "Thresholds",
            (
                Panel(
                    "Threshold changes",
                    "The increase of `triton_operator_threshold_changes_total` in each interval, by kind: accepted or "
                    "refused. Only the leader counts. A new leader starts at 0, and the first change of each kind "
                    "isn't visible.",
                    "short",
                    (
                        Query(
                            f"sum by (kind, result) (increase(triton_operator_threshold_changes_total{JOB}{RATE}))",
                            "{{kind}} {{result}}",
                            line="bars",
                        ),
                    ),
                ),
                Panel(
                    "Thresholds that can't be read",
                    "`triton_operator_thresholds_invalid` of each TritonModel with an invalid one.",
                    "short",
                    (
                        Query(
                            f"max by (namespace, tritonmodel) (triton_operator_thresholds_invalid{JOB}) > 0",
                            "{{namespace}}/{{tritonmodel}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Work",
            (
                Panel(
                    "Reconciles",
                    "`triton_operator_reconciles_total` per second by result: ok, retry (the API server didn't accept "
                    "a request), error (a bug in the operator).",
                    "ops",
                    (Query(f"sum by (result) (rate(triton_operator_reconciles_total{JOB}{RATE}))", "{{result}}"),),
                    width=8,
                ),
                times("Duration of a reconcile", "triton_operator_reconcile_seconds", "From taking a key to the end."),
                times("Time in the work queue", "triton_operator_queue_seconds", "From when a key is due to a worker."),
                Panel(
                    "Keys in the work queue",
                    "`triton_operator_queue_depth` of each replica. Only the leader processes its queue.",
                    "short",
                    (Query(f"triton_operator_queue_depth{JOB}", "{{pod}}"),),
                    width=8,
                ),
                Panel(
                    "Requests to the API server",
                    "`triton_operator_api_requests_total` per second by verb and HTTP status; 0 means no response. "
                    "Without watches.",
                    "reqps",
                    (
                        Query(
                            f"sum by (verb, code) (rate(triton_operator_api_requests_total{JOB}{RATE}))",
                            "{{verb}} {{code}}",
                        ),
                    ),
                    width=8,
                ),
                Panel(
                    "Writes to the API server",
                    "The same without reads, by resource. When nothing changes, only the Lease is written.",
                    "reqps",
                    (
                        Query(
                            f"sum by (resource) (rate(triton_operator_api_requests_total{WRITES}{RATE}))",
                            "{{resource}}",
                        ),
                    ),
                    width=8,
                ),
            ),
        ),
        Row(
            "Process",
            (
                Panel(
                    "Leader",
                    "`triton_operator_leading`: 1 on the replica that holds the Lease.",
                    "short",
                    (Query(f"triton_operator_leading{JOB}", "{{pod}}"),),
                    width=8,
                ),
                Panel(
                    "Memory",
                    "`process_resident_memory_bytes` of the targets that expose `triton_operator_leading`.",
                    "bytes",
                    (Query(f"process_resident_memory_bytes{JOB} {PROCESS}", "{{pod}}"),),
                    width=8,
                ),
                Panel(
                    "CPU",
                    "`process_cpu_seconds_total` of these targets as a rate, in cores.",
                    "short",
                    (Query(f"rate(process_cpu_seconds_total{JOB}{RATE})\n{PROCESS}", "{{pod}}"),),
                    width=8,
                ),
            ),
        ),
    ),
)
