"""The series of the page."""

from __future__ import annotations

CPU = "triton_process_cpu_seconds"
MEMORY = "triton_process_resident_memory_bytes"
THREADS = "triton_process_threads"
STARTED = "triton_process_start_time_seconds"
WORKS = "triton_process_works"
MEMORY_USED = "triton_container_memory_used_bytes"
MEMORY_LIMIT = "triton_container_memory_limit_bytes"
MEMORY_FULL = "triton_container_memory_full_time_seconds"
ALL = "triton_(process|container_memory)_.*"
"""A regular expression for all of them."""
LABELS = ("model", "version", "process")
KINDS = {"RssAnon": "anonymous", "RssFile": "file", "RssShmem": "shared"}
"""The kinds of memory, by Linux's names of them in /proc/PID/status."""
