"""Never finishes loading."""

import time


class TritonPythonModel:
    def initialize(self, args):
        while True:
            time.sleep(1)

    def execute(self, requests):
        raise NotImplementedError
