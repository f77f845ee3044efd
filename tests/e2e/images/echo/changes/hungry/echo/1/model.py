"""Takes more memory than it is given."""


class TritonPythonModel:
    def initialize(self, args):
        self.taken = []
        while True:
            self.taken.append(b"x" * (16 << 20))

    def execute(self, requests):
        return []
