"""The operator itself."""

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
    """A histogram of the operator: quantiles over all its replicas, and the average."""
    return Panel(
        title,
        f"{how} P50 and P99 from the buckets of `{series}`, over all replicas of the operator, so between the bounds "
        "of a bucket they are estimates; average: sum ÷ count.",
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
    "Whether the operator works, how much it has to do, and what it tells of all TritonModels.",
    (Variable("job", "Job", "triton_operator_leading", "job"),),
    (
        Mark(
            "Limit changed",
            "`max-qps` of any TritonModel has changed in Prometheus. A version is among the mark's tags.",
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
                    "The sum of `triton_operator_leading`. 0 for longer than a hand-over takes (about 15 s): nobody "
                    "works.",
                    "short",
                    (Query(f"sum(triton_operator_leading{JOB})", "leaders"),),
                    kind="stat",
                    width=6,
                    levels=(1, 0.5),
                ),
                Panel(
                    "Operators that are scraped",
                    "How many targets expose `triton_operator_leading`.",
                    "short",
                    (Query(f"count(triton_operator_leading{JOB})", "operators"),),
                    kind="stat",
                    width=6,
                    levels=(1, 0.5),
                ),
                Panel(
                    "TritonModels by Ready",
                    "`triton_operator_models`, by the condition Ready; the largest of what the replicas count.",
                    "short",
                    (Query(f"max by (ready) (triton_operator_models{JOB})", "Ready={{ready}}"),),
                    kind="stat",
                    width=6,
                ),
                Panel(
                    "Thresholds that can't be read",
                    "`triton_operator_thresholds_invalid`: annotations of thresholds that say nothing readable, over "
                    "all TritonModels. The last good value stays in force.",
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
                    "`triton_operator_models`, as above, over time.",
                    "short",
                    (Query(f"max by (ready) (triton_operator_models{JOB})", "Ready={{ready}}"),),
                    width=8,
                    stacked=True,
                ),
                Panel(
                    "The fullest TritonModels",
                    "`triton:utilization:ratio`, the ten highest: demand against the limit.",
                    "percentunit",
                    (Query("topk(10, triton:utilization:ratio)", "{{namespace}}/{{tritonmodel}}"),),
                    width=8,
                ),
                Panel(
                    "Servers that are missing",
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
                    "Changes of thresholds",
                    "`triton_operator_threshold_changes_total`, how much more in each interval, by kind: accepted, or "
                    "refused as unreadable. Only the leader counts; a new leader begins at 0, and the first change of "
                    "a kind that it sees makes no step.",
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
                    "`triton_operator_thresholds_invalid` of each TritonModel that has one.",
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
                    "Passes",
                    "`triton_operator_reconciles_total`, a second, by how they ended: ok, retry (the API server "
                    "didn't let us), error (a fault of the operator's).",
                    "ops",
                    (Query(f"sum by (result) (rate(triton_operator_reconciles_total{JOB}{RATE}))", "{{result}}"),),
                    width=8,
                ),
                times("How long a pass takes", "triton_operator_reconcile_seconds", "From taking a key to its end."),
                times("How long a key waits", "triton_operator_queue_seconds", "From being due to a free worker."),
                Panel(
                    "Keys that are due",
                    "`triton_operator_queue_depth` of each replica. Only the leader works it off.",
                    "short",
                    (Query(f"triton_operator_queue_depth{JOB}", "{{pod}}"),),
                    width=8,
                ),
                Panel(
                    "Requests to the API server",
                    "`triton_operator_api_requests_total`, a second, by verb and HTTP status; 0 is no answer. Watches "
                    "are not counted.",
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
                    "The same, without reads, by resource. At rest only the lease is written.",
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
                    "`process_cpu_seconds_total` of the same, as a rate: cores.",
                    "short",
                    (Query(f"rate(process_cpu_seconds_total{JOB}{RATE})\n{PROCESS}", "{{pod}}"),),
                    width=8,
                ),
            ),
        ),
    ),
)
