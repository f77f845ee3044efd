"""Fails to load."""


class TritonPythonModel:
    def initialize(self, args):
        raise RuntimeError("the weights are from Tuesday")

    def execute(self, requests):
        raise NotImplementedError
