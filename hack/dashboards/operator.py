"""The dashboard of the operator."""

from __future__ import annotations

from dashboards.parts import RATE, UTILIZATION, Dashboard, Mark, Panel, Query, Row, Variable, utilization

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
    """Returns a panel of a histogram of the operator: quantiles over all replicas, and the average."""
    return Panel(
        title,
        f"{how} P50 and P99 are estimates from the buckets of `{series}`, over all replicas of the operator. Average: "
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
    "The operator's health, its load, and the state of all TritonModels.",
    (Variable("job", "Job", "triton_operator_leading", "job"),),
    (
        Mark(
            "Limit changed",
            "`max-qps` of any TritonModel changed in Prometheus. If the limit is a version's, the version is a tag of "
            "the annotation.",
            "max by (namespace, tritonmodel, version) ("
            f'changes(triton_operator_threshold{{kind="max-qps"}}{RATE})) > 0',
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
                    "The sum of `triton_operator_leading`. A change of the leader takes about 15 s. If the value stays "
                    "0 for longer, no replica reconciles.",
                    "short",
                    (Query(f"sum(triton_operator_leading{JOB})", "leaders"),),
                    kind="stat",
                    width=6,
                    levels=(1, 0.5),
                ),
                Panel(
                    "Scraped operator replicas",
                    "The number of targets that expose `triton_operator_leading`.",
                    "short",
                    (Query(f"count(triton_operator_leading{JOB})", "operators"),),
                    kind="stat",
                    width=6,
                    levels=(1, 0.5),
                ),
                Panel(
                    "TritonModels by Ready",
                    "`triton_operator_models` by the condition Ready: the maximum over the operator's replicas.",
                    "short",
                    (Query(f"max by (ready) (triton_operator_models{JOB})", "Ready={{ready}}"),),
                    kind="stat",
                    width=6,
                ),
                Panel(
                    "Invalid thresholds",
                    "`triton_operator_thresholds_invalid`: the number of threshold annotations with an invalid value, "
                    "over all TritonModels. The last valid value stays accepted.",
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
                    "`triton_operator_models` by the condition Ready, over time.",
                    "short",
                    (Query(f"max by (ready) (triton_operator_models{JOB})", "Ready={{ready}}"),),
                    width=8,
                    stacked=True,
                ),
                Panel(
                    "Highest utilization",
                    f"The ten highest values. {UTILIZATION}",
                    "percentunit",
                    (Query(f"topk(10, {utilization()})", "{{namespace}}/{{tritonmodel}}"),),
                    width=8,
                ),
                Panel(
                    "Missing servers",
                    "`triton_operator_replicas`, wanted − ready, for each TritonModel.",
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
                    "The increase of `triton_operator_threshold_changes_total` in each interval, by kind and result: "
                    "accepted, or rejected as invalid. Only the leader counts. A new leader starts at 0; the panel "
                    "doesn't show its first change of each kind.",
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
                    "Invalid thresholds by TritonModel",
                    "`triton_operator_thresholds_invalid` of each TritonModel with an invalid threshold.",
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
            "Reconciles",
            (
                Panel(
                    "Reconciles",
                    "The rate of `triton_operator_reconciles_total`, by result: ok, retry (a request to the API server "
                    "failed), error (a bug in the operator).",
                    "ops",
                    (Query(f"sum by (result) (rate(triton_operator_reconciles_total{JOB}{RATE}))", "{{result}}"),),
                    width=8,
                ),
                times("Reconcile duration", "triton_operator_reconcile_seconds", "The time of one reconcile."),
                times("Queue duration", "triton_operator_queue_seconds", "The time from a key being due to its start."),
                Panel(
                    "Queue depth",
                    "`triton_operator_queue_depth` of each replica: keys that are due. Only the leader processes them.",
                    "short",
                    (Query(f"triton_operator_queue_depth{JOB}", "{{pod}}"),),
                    width=8,
                ),
                Panel(
                    "Requests to the API server",
                    "The rate of `triton_operator_api_requests_total`, by verb and HTTP status; 0 means no response. "
                    "Excludes watches.",
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
                    "The rate of `triton_operator_api_requests_total` for writes, by resource. When nothing changes, "
                    "the operator writes only the Lease.",
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
                    "The rate of `process_cpu_seconds_total` of the targets that expose `triton_operator_leading`, in "
                    "cores.",
                    "short",
                    (Query(f"rate(process_cpu_seconds_total{JOB}{RATE})\n{PROCESS}", "{{pod}}"),),
                    width=8,
                ),
            ),
        ),
    ),
)
