"""Inside a pipeline: each model that an ensemble is composed of, preprocess, network and postprocess."""

from __future__ import annotations

from dashboards.parts import (
    LIMIT_CHANGED,
    MODEL,
    NAMESPACE,
    TRITONMODEL,
    Dashboard,
    Panel,
    Query,
    Row,
    Variable,
    rate,
    ratio,
)

CHOSEN = ',model=~"$model"'
BY = "model, version"
NAME = "{{model}} v{{version}}"
SUCCESS = rate("nv_inference_request_success", CHOSEN)
FAILURE = rate("nv_inference_request_failure", CHOSEN)
PER_REQUEST = (
    "÷ `nv_inference_request_success`, both as rates and summed up over servers first: the average of a request."
)


def per_request(part: str) -> str:
    """Seconds of one part of a request's way through a model."""
    return ratio(rate(f"nv_inference_{part}_duration_us", CHOSEN), SUCCESS, BY) + "\n/ 1e6"


def time_panel(title: str, part: str, what: str) -> Panel:
    return Panel(
        title,
        f"`nv_inference_{part}_duration_us` {PER_REQUEST} {what}",
        "s",
        (Query(per_request(part), NAME),),
        width=8,
    )


QUEUE = f"triton:queue_duration_seconds:avg1m{{{MODEL}{CHOSEN}}}"
PARTS = ("compute_input", "compute_infer", "compute_output")

DASHBOARD = Dashboard(
    "modules",
    "Triton / Modules",
    "Each model that does work: of an ensemble, the composing models (say preprocess, network, postprocess), not the "
    "ensemble itself, which only passes tensors on. Times are averages, since they can be added up: queue, input, "
    "inference and output together are nearly the whole of a model's time.",
    (
        NAMESPACE,
        TRITONMODEL,
        Variable("model", "Model", f"triton:queue_duration_seconds:avg1m{{{MODEL}}}", "model", several=True),
    ),
    (LIMIT_CHANGED,),
    (
        Row(
            "Success",
            (
                Panel(
                    "Success rate of each model",
                    "`nv_inference_request_success` ÷ (the same + `nv_inference_request_failure`), of the model's own "
                    "counters. Take care: an error that a Python model answers for one request counts as a failure of "
                    "the ensemble and a success of that model. Look at the requests beside, too.",
                    "percentunit",
                    (
                        Query(
                            f"sum by ({BY}) ({SUCCESS})\n/\n(sum by ({BY}) ({SUCCESS}) + sum by ({BY}) ({FAILURE}))",
                            NAME,
                        ),
                    ),
                    width=8,
                    most=1,
                ),
                Panel(
                    "Requests through each model",
                    "`nv_inference_request_success`, a second, and in the same way the entry's (`triton:qps:rate1m`). "
                    "In a plain chain all are equal: where a model has fewer than the one before it, that one "
                    "answered the difference with errors.",
                    "reqps",
                    (
                        Query(f"sum by ({BY}) ({SUCCESS})", NAME),
                        Query(f"triton:qps:rate1m{{{MODEL}}}", "entry {{model}} v{{version}}"),
                    ),
                    width=8,
                ),
                Panel(
                    "Failures by reason",
                    "`nv_inference_request_failure`, a second: REJECTED by a full queue or a timeout in it, CANCELED "
                    "by the client, BACKEND where the execution as a whole failed, OTHER.",
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
                    "$model: where the time goes",
                    "The four parts of a request's time in this model, averages, stacked: waiting in the queue "
                    "(`triton:queue_duration_seconds:avg1m`), then `nv_inference_compute_input_duration_us`, "
                    f"`…_infer_…` and `…_output_…` {PER_REQUEST} A request in a batch is counted with the whole "
                    "batch's time.",
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
            "Time, by part",
            (
                time_panel("Average latency", "request", "From arrival to answer, the queue included."),
                Panel(
                    "Queue",
                    "`triton:queue_duration_seconds:avg1m`: `nv_inference_queue_duration_us` ÷ requests, over the last "
                    "minute. Above `spec.monitoring.queueMilliseconds` it is an alert.",
                    "s",
                    (Query(QUEUE, "{{model}}"),),
                    width=8,
                ),
                Panel(
                    "Waiting requests",
                    "`nv_inference_pending_request_count`: that have arrived and aren't being executed, summed up over "
                    "servers, at the moment of the scrape.",
                    "short",
                    (Query(f"sum by ({BY}) (nv_inference_pending_request_count{{{MODEL}{CHOSEN}}})", NAME),),
                    width=8,
                ),
                time_panel("Input", "compute_input", "Gathering the inputs, copies to the accelerator among it."),
                time_panel("Inference", "compute_infer", "The execution itself."),
                time_panel("Output", "compute_output", "Handing the outputs on, copies from the accelerator among it."),
                Panel(
                    "P99 of each model",
                    "Triton's own summary (`summary_latencies`) over about the last minute, of the slowest server: "
                    "quantiles can't be added up over servers, nor over models.",
                    "s",
                    (
                        Query(
                            f'max by ({BY}) (nv_inference_request_summary_us{{{MODEL}{CHOSEN},quantile="0.99"}}) / 1e6',
                            NAME,
                        ),
                    ),
                    width=8,
                ),
            ),
        ),
        Row(
            "Batching",
            (
                Panel(
                    "Batch size",
                    "`nv_inference_count` ÷ `nv_inference_exec_count`, as rates: how many inferences an execution "
                    "does. A request that is a batch of 4 by itself counts as 4. A Python model that loops over its "
                    "batch shows the same figure as one that doesn't.",
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
                    "`nv_inference_exec_count`, a second, over all servers.",
                    "ops",
                    (Query(f"sum by ({BY}) ({rate('nv_inference_exec_count', CHOSEN)})", NAME),),
                ),
            ),
        ),
    ),
)
