"""Fails as models do: when they are loaded."""


class TritonPythonModel:
    def initialize(self, args):
        raise RuntimeError("the weights are from Tuesday")

    def execute(self, requests):
        return []
