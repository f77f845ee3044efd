"""The dashboard of the models in a pipeline, such as preprocess, network and postprocess."""

from __future__ import annotations

from dashboards.parts import (
    LIMIT_CHANGED,
    MODEL,
    NAMESPACE,
    NOT_STREAMS,
    TRITONMODEL,
    Dashboard,
    Panel,
    Query,
    Row,
    Variable,
    measured,
    rate,
    ratio,
)
from latency_sampler import series as sampled
from triton_operator.render.rules.latency import DURATION

CHOSEN = ',model=~"$model"'
BY = "model, version"
NAME = "{{model}} v{{version}}"
SUCCESS = rate("nv_inference_request_success", CHOSEN)
FAILURE = rate("nv_inference_request_failure", CHOSEN)
PER_REQUEST = "÷ `nv_inference_request_success`, both as rates summed over servers: the average of a request."


def per_request(part: str) -> str:
    """Returns a query for the average seconds that a request spends in one stage of a model."""
    return ratio(measured(rate(f"nv_inference_{part}_duration_us", CHOSEN)), SUCCESS, BY) + "\n/ 1e6"


def time_panel(title: str, part: str, what: str) -> Panel:
    return Panel(
        title,
        f"`nv_inference_{part}_duration_us` {PER_REQUEST} {what} {NOT_STREAMS}",
        "s",
        (Query(per_request(part), NAME),),
        width=8,
    )


QUEUE = f"tritonmodel:queue_duration_seconds:avg1m{{{MODEL}{CHOSEN}}}"
PARTS = ("compute_input", "compute_infer", "compute_output")

DASHBOARD = Dashboard(
    "modules",
    "Triton / Modules",
    "The models of one TritonModel that execute: the composing models of an ensemble (such as preprocess, network, "
    "postprocess), without the ensemble, which only passes tensors. Times are averages, because averages can be added: "
    "queue, input, inference and output make up nearly all of a model's time.",
    (
        NAMESPACE,
        TRITONMODEL,
        Variable("model", "Model", f"tritonmodel:queue_duration_seconds:avg1m{{{MODEL}}}", "model", several=True),
    ),
    (LIMIT_CHANGED,),
    (
        Row(
            "Success",
            (
                Panel(
                    "Success rate of each model",
                    "`nv_inference_request_success` ÷ (`nv_inference_request_success` + "
                    "`nv_inference_request_failure`) of each model. If a Python model returns an error for one "
                    "request, Triton counts a failure of the ensemble but a success of that model. Compare with "
                    "Requests through each model.",
                    "percentunit",
                    (
                        Query(
                            f"sum by ({BY}) ({SUCCESS})\n/\n(sum by ({BY}) ({SUCCESS}) + sum by ({BY}) ({FAILURE}))",
                            NAME,
                        ),
                    ),
                    width=8,
                    maximum=1,
                ),
                Panel(
                    "Requests through each model",
                    "The rate of `nv_inference_request_success`, and the entrypoint's "
                    "(`tritonmodel:requests_served:rate1m`). In a plain chain all are equal. If a model has fewer "
                    "requests than the model before it, the model before it answered the difference with errors.",
                    "reqps",
                    (
                        Query(f"sum by ({BY}) ({SUCCESS})", NAME),
                        Query(f"tritonmodel:requests_served:rate1m{{{MODEL}}}", "entrypoint {{model}} v{{version}}"),
                    ),
                    width=8,
                ),
                Panel(
                    "Failures by reason",
                    "The rate of `nv_inference_request_failure`. REJECTED: the request waited in the queue for longer "
                    "than its timeout; Triton doesn't count requests that a full queue rejects. CANCELED: by the "
                    "client. BACKEND: the whole execution failed. OTHER: other reasons.",
                    "reqps",
                    (Query(f"sum by (model, version, reason) ({FAILURE})", NAME + " {{reason}}"),),
                    width=8,
                ),
            ),
        ),
        Row(
            "Time",
            (
                Panel(
                    "$model: time of a request",
                    "The average time of a request in the four stages of this model, stacked: the queue "
                    "(`tritonmodel:queue_duration_seconds:avg1m`), then `nv_inference_compute_input_duration_us`, "
                    f"`…_infer_…` and `…_output_…` {PER_REQUEST} Each request in a batch counts the time of the whole "
                    f"batch. {NOT_STREAMS}",
                    "s",
                    (
                        Query(QUEUE, "queue"),
                        *(Query(per_request(part), part.removeprefix("compute_")) for part in PARTS),
                    ),
                    width=8,
                    stacked=True,
                    each="model",
                ),
            ),
        ),
        Row(
            "Time, by stage",
            (
                time_panel("Average latency", "request", "From arrival to response, including the queue."),
                Panel(
                    "Queue",
                    "`tritonmodel:queue_duration_seconds:avg1m`: `nv_inference_queue_duration_us` ÷ requests, over "
                    "the last minute. An alert fires above `spec.monitoring.queueMilliseconds`.",
                    "s",
                    (Query(QUEUE, "{{model}}"),),
                    width=8,
                ),
                Panel(
                    "Waiting requests",
                    "`nv_inference_pending_request_count`: requests that wait for execution at the time of the scrape, "
                    "summed over servers.",
                    "short",
                    (Query(f"sum by ({BY}) (nv_inference_pending_request_count{{{MODEL}{CHOSEN}}})", NAME),),
                    width=8,
                ),
                time_panel("Input", "compute_input", "The preparation of inputs, with copies to the accelerator."),
                time_panel("Inference", "compute_infer", "The execution of the model."),
                time_panel("Output", "compute_output", "The extraction of outputs, with copies from the accelerator."),
                Panel(
                    "P99 of each model",
                    f"With `spec.monitoring.latency` `{DURATION}`, over five minutes and all servers. Without it "
                    "Triton's summary (`summary_latencies`) over about the last minute, on the slowest server. "
                    f"Quantiles can't be added over servers or over models. {NOT_STREAMS}",
                    "s",
                    (
                        Query(
                            f'{DURATION}{{{MODEL}{CHOSEN},quantile="0.99"}}\n'
                            f"or on (namespace, tritonmodel) max by (namespace, tritonmodel, {BY}) "
                            + measured(f'nv_inference_request_summary_us{{{MODEL}{CHOSEN},quantile="0.99"}}')
                            + " / 1e6",
                            "{{model}} {{version}}",
                        ),
                    ),
                    width=8,
                ),
                *(
                    Panel(
                        f"P99 {where}, over all servers",
                        f"`{series}`: {what}, over five minutes and all servers. Needs `spec.monitoring.latency`.",
                        "s",
                        (
                            Query(
                                "histogram_quantile(0.99, sum by (model, le) ("
                                + measured(f"rate({series}_bucket{{{MODEL}{CHOSEN}}}[5m])")
                                + "))",
                                "{{model}}",
                            ),
                        ),
                        width=8,
                    )
                    for where, series, what in (
                        ("in the queue", sampled.QUEUE, "the time of a request in the model's queue"),
                        ("of the execution", sampled.COMPUTE, "the time of a request in the model's backend"),
                    )
                ),
                Panel(
                    "Load time",
                    "`nv_model_load_duration_secs`, of servers from 24.11 on: how long the last load of a model took, "
                    "on the slowest server. It includes the warm-up.",
                    "s",
                    (Query(f"max by ({BY}) (nv_model_load_duration_secs{{{MODEL}{CHOSEN}}})", NAME),),
                    width=8,
                ),
            ),
        ),
        Row(
            "Batching",
            (
                Panel(
                    "Batch size",
                    "`nv_inference_count` ÷ `nv_inference_exec_count`, as rates: inferences per execution. A request "
                    "with a batch of 4 counts as 4 inferences. A Python model that loops over its batch has the same "
                    "value as one that doesn't.",
                    "short",
                    (
                        Query(
                            ratio(rate("nv_inference_count", CHOSEN), rate("nv_inference_exec_count", CHOSEN), BY),
                            NAME,
                        ),
                    ),
                ),
                Panel(
                    "Executions",
                    "The rate of `nv_inference_exec_count`, summed over servers.",
                    "ops",
                    (Query(f"sum by ({BY}) ({rate('nv_inference_exec_count', CHOSEN)})", NAME),),
                ),
            ),
        ),
    ),
)
