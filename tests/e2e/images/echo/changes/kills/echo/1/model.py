"""A model that ends its server while it is being loaded."""

import os
import signal
import time


class TritonPythonModel:
    def initialize(self, args):
        os.kill(1, signal.SIGTERM)
        time.sleep(600)

    def execute(self, requests):
        raise NotImplementedError
