"""Installs or builds what the cluster and the tests need: command-line tools, a control plane, Docker and images.

`python3 -m hack.world up GOAL` uses container registries and release downloads or, if they can't be reached, package
registries. It needs only the standard library. See docs/bare-machine.md.
"""
