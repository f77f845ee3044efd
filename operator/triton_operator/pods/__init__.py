"""The pods of servers: what their status says. The functions are pure."""

from .pod import Pod
from .problems import Problem

__all__ = ["Pod", "Problem"]
