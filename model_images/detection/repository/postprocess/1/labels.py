"""The names of the classes."""

from pathlib import Path


def read_labels(path: Path) -> list[str]:
    """Reads one name per line, from class 0 on, and ignores empty lines at the end. Raises ValueError."""
    try:
        lines = path.read_text(encoding="utf-8-sig").rstrip().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"can't read the class names from {path}: {error}") from error
    labels = [line.strip() for line in lines]
    for number, label in enumerate(labels, 1):
        if not label:
            raise ValueError(f"{path}, line {number}: a class has no name")
    return labels
