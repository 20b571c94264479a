"""Say something to whoever runs a command, and on the page of the workflow that runs it."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path


def tell(text: str) -> None:
    print(f"{text}\n", flush=True)
    if page := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(page).open("a", encoding="utf-8") as file:
            file.write(f"{text}\n\n")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, aligned to be read as it is."""
    lines = [[cell.replace("|", r"\|") for cell in line] for line in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    padded = ([c.ljust(w) for c, w in zip(line, widths, strict=True)] for line in lines)
    return "\n".join("| " + " | ".join(line) + " |" for line in padded)
