"""Settings of all tests."""

from hypothesis import settings

from hack import environment

# The tests see the same environment for every caller.
environment.use()

pytest_plugins = ["support.evidence"]

# A busy machine may take longer than the default deadline of Hypothesis, 200 ms for an example.
settings.register_profile("without-deadline", deadline=None)
settings.load_profile("without-deadline")
