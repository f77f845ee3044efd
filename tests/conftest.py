"""Settings of all tests."""

import os

from hypothesis import settings

from hack import environment

# The tests see the same environment for every caller.
environment.use()

pytest_plugins = ["support.evidence"]

# A busy machine may take longer than the default deadline of Hypothesis, 200 ms for an example. The examples are always
# the same, so that a failure comes from the change under test; with SOAK=1 they are random.
settings.register_profile("ours", deadline=None, derandomize=os.environ.get("SOAK") != "1")
settings.load_profile("ours")
