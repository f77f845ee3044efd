"""Arguments of tritonserver: what it refuses, what it reads only in part, and what it takes.

tests/corpus/test_server_args.py compares them with the real server, tests/unit/validate/test_server_args.py with the
check.
"""

from __future__ import annotations

REFUSED = {
    "word for a number": ["--http-thread-count=ten"],
    "word for a number in an argument of its own": ["--http-thread-count", "ten"],
    "empty number": ["--buffer-manager-thread-count="],
    "word for a decimal number": ["--min-supported-compute-capability=high"],
    "yes": ["--allow-gpu-metrics=yes"],
    "empty boolean": ["--log-info="],
    "verbose level": ["--log-verbose=all"],
    "log format": ["--log-format=json"],
    "log format in lower case": ["--log-format=iso8601"],
    "rate limit": ["--rate-limit=on"],
    "compression": ["--grpc-infer-response-compression-level=gzip"],
    "unknown flag": ["--log-level=2"],
    "misspelt flag": ["--cache-confg=local,size=1048576"],
    "abbreviation of several flags": ["--log=true"],
    "one hyphen": ["-log-info=true"],
    "argument without a flag": ["true"],
    "value after a flag without one": ["--disable-auto-complete-config", "true"],
    "value of a flag without one": ["--disable-auto-complete-config=true"],
    "flag without its value": ["--log-info"],
    "cache without a name": ["--cache-config=size=1048576"],
    "cache without a setting": ["--cache-config=local"],
    "backend without a value": ["--backend-config=python,shm-default-byte-size"],
    "backend with an empty value": ["--backend-config=python,shm-default-byte-size="],
    "global setting without a value": ["--backend-config=default-max-batch-size"],
    "metrics setting without a value": ["--metrics-config=summary_latencies"],
    "host policy without a setting": ["--host-policy=gpu_0,numa-node"],
    "resource without a count": ["--rate-limit-resource=R"],
    "word for a count": ["--rate-limit-resource=R:many"],
    "word for a device": ["--rate-limit-resource=R:2:gpu"],
    "memory pool without a device": ["--cuda-memory-pool-byte-size=67108864"],
    "word for a device of a memory pool": ["--cuda-memory-pool-byte-size=gpu:67108864"],
    "limit without a fraction": ["--model-load-gpu-limit=0"],
    "word for a fraction": ["--model-load-gpu-limit=0:half"],
    "restricted API without a key": ["--http-restricted-api=inference"],
    "restricted API with a comma": ["--http-restricted-api=inference,key=secret"],
    "unknown restricted API": ["--http-restricted-api=infer:key=secret"],
    "one unknown restricted protocol": ["--grpc-restricted-protocol=health,infer:key=secret"],
    "two flags for the cache": ["--response-cache-byte-size=1048576", "--cache-config=local,size=1048576"],
}
REFUSED_WITH_TRACING = {
    "unknown mode of traces": ["--trace-config=otel,url=http://localhost"],
    "word for the rate of traces": ["--trace-config=rate=all"],
    "word for the number of traces": ["--trace-config=count=all"],
}
"""Of builds of tritonserver that can trace."""
MISREAD = {
    "unit of a time": ["--http-thread-count=10s"],
    "unit of a size": ["--pinned-memory-pool-byte-size=256Mi"],
    "decimal point in a whole number": ["--http-thread-count=4.5"],
    "decimal point in the interval of metrics": ["--metrics-interval-ms=1500.5"],
    "exponent in a whole number": ["--pinned-memory-pool-byte-size=1e6"],
    "unit of a decimal number": ["--min-supported-compute-capability=6.0x"],
    "unit of a memory pool": ["--cuda-memory-pool-byte-size=0:64Mi"],
    "unit of a fraction": ["--model-load-gpu-limit=0:90%"],
    "unit of a count": ["--rate-limit-resource=R:2x"],
    "unit of the shared memory": ["--backend-config=python,shm-default-byte-size=64Mi"],
    "unit of a timeout": ["--backend-config=python,stub-timeout-seconds=60s"],
    "unit of a cache": ["--cache-config=local,size=64Mi"],
}
TAKEN = {
    "nothing": [],
    "booleans": ["--allow-gpu-metrics=on", "--allow-cpu-metrics", "0", "--log-info=TRUE", "--log-warning=Off"],
    "verbose level as a boolean": ["--log-verbose=true"],
    "verbose level": ["--log-verbose", "2"],
    "negative number": ["--buffer-manager-thread-count=-1"],
    "signed number": ["--buffer-manager-thread-count=+1"],
    "decimal numbers": ["--min-supported-compute-capability=.5", "--metrics-interval-ms=2000"],
    "exponent": ["--min-supported-compute-capability=6e0"],
    "abbreviated flag": ["--http-thread=4"],
    "value that begins with hyphens": ["--id", "--log-info"],
    "other case": ["--rate-limit=Execution_Count", "--grpc-infer-response-compression-level=LOW"],
    "log format": ["--log-format=ISO8601"],
    "settings": ["--backend-config=python,shm-default-byte-size=67108864", "--cache-config=local,size=1048576"],
    "global setting": ["--backend-config=default-max-batch-size=4"],
    "setting with commas and signs": ["--backend-config=mine,key=a,b=c"],
    "setting of a cache with signs": ["--metrics-config=summary_quantiles=0.5:0.05,0.9:0.01"],
    "resources": ["--rate-limit=execution_count", "--rate-limit-resource=R:2", "--rate-limit-resource=S:1:0"],
    "host policy": ["--host-policy=gpu_0,cpu-cores=0-3"],
    "memory pools": ["--cuda-memory-pool-byte-size=0:67108864", "--cuda-memory-pool-byte-size", "1:0"],
    "restricted APIs": ["--http-restricted-api=health,metadata:key=se:c=ret"],
    "deprecated size of the cache": ["--response-cache-byte-size=1048576"],
    "text that looks like a number": ["--id=10s", "--http-header-forward-pattern=x-.*"],
}
"""Of each version from 2.51 on."""
