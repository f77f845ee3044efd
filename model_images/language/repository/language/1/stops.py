"""Stop strings in a text that arrives in pieces."""


class StopFilter:
    """Passes a text on up to the first stop string. Holds back the end of it that may be the start of a stop string."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        """Starts with an empty text."""
        self._stops = stops
        self._held = ""

    def push(self, piece: str) -> tuple[str, bool]:
        """Adds a piece. Returns the text that is now certain, and whether the text has ended at a stop string."""
        text = self._held + piece
        starts = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if starts:
            self._held = ""
            return text[: min(starts)], True
        held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held], False

    def rest(self) -> str:
        """Returns what is held back, when no more pieces come."""
        return self._held


def _overlap(text: str, stop: str) -> int:
    """Returns the length of the longest end of the text with which the stop string begins."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
