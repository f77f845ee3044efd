"""The dashboard of the resources of one TritonModel's servers."""

from __future__ import annotations

from dashboards.parts import (
    LIMIT_CHANGED,
    MODEL,
    NAMESPACE,
    OF_POD,
    RATE,
    TRITONMODEL,
    Dashboard,
    Panel,
    Query,
    Row,
)
from triton_operator.api import names

SERVER = f'namespace="$namespace",container="{names.CONTAINER_SERVER}"'
JOIN = f"and on (namespace, pod) up{{{MODEL}}}"
JOINED = " The kubelet's series have no TritonModel label; the query selects the TritonModel's pods by `up`."

CPU_TIME, RESIDENT = "triton_process_cpu_seconds_total", "triton_process_resident_memory_bytes"
OF = f"{{{MODEL}}}"
MODELS, OTHERS = f'{{{MODEL},model!=""}}', f'{{{MODEL},model=""}}'
OWN_OF_MODELS, OWN_OF_OTHERS = f'{{{MODEL},model!="",kind="anonymous"}}', f'{{{MODEL},model="",kind="anonymous"}}'
PROCESSES = " Needs `spec.monitoring.processes`."


def used(series: str, by: str = "pod") -> str:
    """Restricts a series of the kubelet to the pods of the selected TritonModel."""
    return f"sum by ({by}) (({series})\n  {JOIN})"


def limit(resource: str) -> str:
    return used(f'kube_pod_container_resource_limits{{{SERVER},resource="{resource}"}}')


DASHBOARD = Dashboard(
    "resources",
    "Triton / Resources",
    "CPU, memory and GPUs of one TritonModel's servers, the number of servers, and the load as a number of servers. "
    "Needs the kubelet's cAdvisor series and, for the limits, kube-state-metrics.",
    (NAMESPACE, TRITONMODEL),
    (LIMIT_CHANGED,),
    (
        Row(
            "Servers",
            (
                Panel(
                    "Wanted and ready replicas",
                    "`triton_operator_replicas`, the maximum over the operator's replicas. Wanted: the number in the "
                    "spec or from the autoscaler. Ready: from the Deployment's status. Scraped: the sum of `up`.",
                    "short",
                    (
                        Query(f"max by (state) (triton_operator_replicas{{{MODEL}}})", "{{state}}"),
                        Query(f"sum by (tritonmodel) (up{{{MODEL}}})", "scraped"),
                    ),
                ),
                Panel(
                    "Load, in servers",
                    "Load: `tritonmodel:load_replicas:max`, demand ÷ max-qps-per-replica, or tokens, streams or the "
                    "KV cache ÷ those of one server, whichever is largest. Predicted: "
                    "`tritonmodel:load_replicas:predict2m`, the load in 2 minutes by linear regression over the last "
                    "5 minutes, at most twice the load. Autoscaler: `tritonmodel:autoscaler_load_replicas:max`, the "
                    "value that the autoscaler reads. Its target is a load of `spec.autoscaling.utilization` for each "
                    "server. Without a limit or requests there is no line.",
                    "short",
                    (
                        Query(f"tritonmodel:load_replicas:max{{{MODEL}}}", "load"),
                        Query(f"tritonmodel:load_replicas:predict2m{{{MODEL}}}", "predicted"),
                        Query(f"tritonmodel:autoscaler_load_replicas:max{{{MODEL}}}", "autoscaler"),
                        Query(
                            f'max by (tritonmodel) (triton_operator_replicas{{{MODEL},state="ready"}})', "ready servers"
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "CPU and memory",
            (
                Panel(
                    "CPU",
                    f"The rate of `container_cpu_usage_seconds_total` of the container `{names.CONTAINER_SERVER}`, in "
                    "cores. Limit: `kube_pod_container_resource_limits` from kube-state-metrics." + JOINED,
                    "short",
                    (
                        Query(used(f"rate(container_cpu_usage_seconds_total{{{SERVER}}}{RATE})"), "{{pod}}"),
                        Query(f"max({limit('cpu')})", "limit per server", line="limit"),
                    ),
                    width=8,
                ),
                Panel(
                    "CPU throttled",
                    "`container_cpu_cfs_throttled_periods_total` ÷ `container_cpu_cfs_periods_total`: the fraction of "
                    "CFS periods in which the CPU limit throttled the server. A common cause is more threads than "
                    "cores." + JOINED,
                    "percentunit",
                    (
                        Query(
                            used(f"rate(container_cpu_cfs_throttled_periods_total{{{SERVER}}}{RATE})")
                            + "\n/\n"
                            + used(f"rate(container_cpu_cfs_periods_total{{{SERVER}}}{RATE})"),
                            "{{pod}}",
                        ),
                    ),
                    width=8,
                    maximum=1,
                ),
                Panel(
                    "Memory",
                    "`container_memory_working_set_bytes`. At the limit the kernel kills the server. Tensors in "
                    "/dev/shm count as memory. Limit: `kube_pod_container_resource_limits`." + JOINED,
                    "bytes",
                    (
                        Query(used(f"container_memory_working_set_bytes{{{SERVER}}}"), "{{pod}}"),
                        Query(f"max({limit('memory')})", "limit per server", line="limit"),
                    ),
                    width=8,
                ),
            ),
        ),
        Row(
            "Processes",
            (
                Panel(
                    "CPU of each model's processes",
                    "The rate of `triton_process_cpu_seconds_total`, in cores: of the processes of each Python model, "
                    "and of tritonserver, in which all other models run; over all servers." + PROCESSES,
                    "short",
                    (
                        Query(f"sum by (model) (rate({CPU_TIME}{MODELS}{RATE}))", "{{model}}"),
                        Query(f"sum by (process) (rate({CPU_TIME}{OTHERS}{RATE}))", "{{process}}"),
                    ),
                    width=8,
                ),
                Panel(
                    "Memory of each model's processes",
                    "`triton_process_resident_memory_bytes` of the kind `anonymous`, without /dev/shm and files: on "
                    "the server with the most. A line that only rises is a leak." + PROCESSES,
                    "bytes",
                    (
                        Query(f"max by (model) (sum by (pod, model) ({RESIDENT}{OWN_OF_MODELS}))", "{{model}}"),
                        Query(f"max by (process) ({RESIDENT}{OWN_OF_OTHERS})", "{{process}}"),
                    ),
                    width=8,
                ),
                Panel(
                    "Threads",
                    "`triton_process_threads`, on the server with the most." + PROCESSES,
                    "short",
                    (
                        Query(f"max by (model) (sum by (pod, model) (triton_process_threads{MODELS}))", "{{model}}"),
                        Query(f"max by (process) (triton_process_threads{OTHERS})", "{{process}}"),
                    ),
                    width=4,
                ),
                Panel(
                    "Memory and its limit",
                    "`triton_container_memory_used_bytes`, which can't be reclaimed, and the container's limit: of the "
                    "server with the most. `TritonModelMemoryGrows` fires when it grows steadily towards the limit."
                    + PROCESSES,
                    "bytes",
                    (
                        Query(f"max(triton_container_memory_used_bytes{OF})", "used"),
                        Query(f"max(triton_container_memory_limit_bytes{OF})", "limit"),
                    ),
                    width=8,
                ),
                Panel(
                    "Starts of processes",
                    "How often a process of a model started again in the same pod within an hour, by changes of "
                    "`triton_process_start_time_seconds`: when its model was loaded again, or the server restarted."
                    + PROCESSES,
                    "short",
                    (
                        Query(
                            f"sum by (model) (changes(triton_process_start_time_seconds{MODELS}[1h]))",
                            "{{model}}",
                        ),
                        Query(
                            f"sum by (process) (changes(triton_process_start_time_seconds{OTHERS}[1h]))",
                            "{{process}}",
                        ),
                    ),
                    width=4,
                ),
            ),
        ),
        Row(
            "GPU and pinned memory",
            (
                Panel(
                    "GPU utilization",
                    "`nv_gpu_utilization` of each GPU of a server: the fraction of time in which at least one kernel "
                    "ran. It doesn't show how much of the GPU the kernels used. Only NVIDIA GPUs have GPU series.",
                    "percentunit",
                    (Query(f"max by (pod, gpu_uuid) (nv_gpu_utilization{{{MODEL}}})", "{{pod}} {{gpu_uuid}}"),),
                    maximum=1,
                ),
                Panel(
                    "GPU memory",
                    "`nv_gpu_memory_used_bytes` and `nv_gpu_memory_total_bytes`: the memory of the GPU, used by any "
                    "process.",
                    "bytes",
                    (
                        Query(f"max by (pod, gpu_uuid) (nv_gpu_memory_used_bytes{{{MODEL}}})", "{{pod}} {{gpu_uuid}}"),
                        Query(f"max(nv_gpu_memory_total_bytes{{{MODEL}}})", "total per GPU", line="limit"),
                    ),
                ),
                Panel(
                    "GPU power",
                    "`nv_gpu_power_usage`, in watts.",
                    "watt",
                    (Query(f"max by (pod, gpu_uuid) (nv_gpu_power_usage{{{MODEL}}})", "{{pod}} {{gpu_uuid}}"),),
                ),
                Panel(
                    "Pinned memory",
                    "`nv_pinned_memory_pool_used_bytes` and `nv_pinned_memory_pool_total_bytes`: the pool of "
                    "page-locked memory for copies to a GPU. When it is full, copies are slower.",
                    "bytes",
                    (
                        Query(f"sum by ({OF_POD}) (nv_pinned_memory_pool_used_bytes{{{MODEL}}})", "{{pod}}"),
                        Query(f"max(nv_pinned_memory_pool_total_bytes{{{MODEL}}})", "pool per server", line="limit"),
                    ),
                ),
            ),
        ),
    ),
)
