"""The dashboard of the servers of one TritonModel: number, CPU, memory, GPUs."""

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
JOINED = " The kubelet's series have no TritonModel; the query selects its pods with `up`."


def used(series: str, by: str = "pod") -> str:
    """Returns the query of a kubelet series for the pods of the chosen TritonModel."""
    return f"sum by ({by}) (({series})\n  {JOIN})"


def limit(resource: str) -> str:
    return used(f'kube_pod_container_resource_limits{{{SERVER},resource="{resource}"}}')


DASHBOARD = Dashboard(
    "resources",
    "Triton / Resources",
    "CPU, memory and accelerators of one TritonModel's servers, the number of servers, and the load. Needs the "
    "kubelet's cAdvisor series and, for the limits, kube-state-metrics.",
    (NAMESPACE, TRITONMODEL),
    (LIMIT_CHANGED,),
    (
        Row(
            "Servers",
            (
                Panel(
                    "Replicas wanted and ready",
                    "`triton_operator_replicas`: wanted, from the spec or the autoscaler; ready, from the Deployment. "
                    "If the operator's replicas differ, the largest. Scraped: the sum of `up`.",
                    "short",
                    (
                        Query(f"max by (state) (triton_operator_replicas{{{MODEL}}})", "{{state}}"),
                        Query(f"sum by (tritonmodel) (up{{{MODEL}}})", "scraped"),
                    ),
                ),
                Panel(
                    "Load, in servers",
                    "`triton:load:replicas`: the number of servers that could handle the demand at full use. This is "
                    "demand ÷ max-qps-per-replica or tokens ÷ max-tps-per-replica, whichever is larger. Predicted: "
                    "`triton:load_predicted:replicas`, the trend of the last 5 minutes, 2 minutes ahead, at most "
                    "twice the load. The autoscaler reads `triton:autoscaler_load:replicas` and keeps it at "
                    "`spec.autoscaling.utilization` per server. No line: no limit, or no requests.",
                    "short",
                    (
                        Query(f"triton:load:replicas{{{MODEL}}}", "load"),
                        Query(f"triton:load_predicted:replicas{{{MODEL}}}", "predicted"),
                        Query(f"triton:autoscaler_load:replicas{{{MODEL}}}", "autoscaler"),
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
                    f"`container_cpu_usage_seconds_total` of the container `{names.CONTAINER_SERVER}`, as a rate, "
                    "in cores. Limit: `kube_pod_container_resource_limits` of kube-state-metrics." + JOINED,
                    "short",
                    (
                        Query(used(f"rate(container_cpu_usage_seconds_total{{{SERVER}}}{RATE})"), "{{pod}}"),
                        Query(f"max({limit('cpu')})", "limit of a server", line="limit"),
                    ),
                    width=8,
                ),
                Panel(
                    "CPU throttled",
                    "`container_cpu_cfs_throttled_periods_total` ÷ `container_cpu_cfs_periods_total`: the fraction of "
                    "the scheduler's periods in which the CPU limit stopped the server. A usual cause is more "
                    "threads than cores." + JOINED,
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
                    most=1,
                ),
                Panel(
                    "Memory",
                    "`container_memory_working_set_bytes`, which must stay below the limit. It includes tensors in "
                    "/dev/shm. Limit: `kube_pod_container_resource_limits`." + JOINED,
                    "bytes",
                    (
                        Query(used(f"container_memory_working_set_bytes{{{SERVER}}}"), "{{pod}}"),
                        Query(f"max({limit('memory')})", "limit of a server", line="limit"),
                    ),
                    width=8,
                ),
            ),
        ),
        Row(
            "GPU and pinned memory",
            (
                Panel(
                    "GPU utilization",
                    "`nv_gpu_utilization` of each GPU that a server sees: the fraction of time in which at least one "
                    "kernel ran. It doesn't show how much of the GPU was used. Only with NVIDIA GPUs.",
                    "percentunit",
                    (Query(f"max by (pod, gpu_uuid) (nv_gpu_utilization{{{MODEL}}})", "{{pod}} {{gpu_uuid}}"),),
                    most=1,
                ),
                Panel(
                    "GPU memory",
                    "`nv_gpu_memory_used_bytes` and `nv_gpu_memory_total_bytes`: of the GPU, including other programs.",
                    "bytes",
                    (
                        Query(f"max by (pod, gpu_uuid) (nv_gpu_memory_used_bytes{{{MODEL}}})", "{{pod}} {{gpu_uuid}}"),
                        Query(f"max(nv_gpu_memory_total_bytes{{{MODEL}}})", "a GPU's memory", line="limit"),
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
                    "page-locked memory for copies of tensors to a GPU. When it is full, copies are slower.",
                    "bytes",
                    (
                        Query(f"sum by ({OF_POD}) (nv_pinned_memory_pool_used_bytes{{{MODEL}}})", "{{pod}}"),
                        Query(f"max(nv_pinned_memory_pool_total_bytes{{{MODEL}}})", "a server's pool", line="limit"),
                    ),
                ),
            ),
        ),
    ),
)
