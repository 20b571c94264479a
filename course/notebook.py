"""Read a notebook that somebody handed in: leniently, and without running anything of it.

What a learning platform, an editor or Colab may have done to a notebook (line ends, encodings, an
older format, lost metadata) costs nobody a point. What can't be read is told in one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

LARGEST = 32 * 2**20  # bytes: a notebook with many pictures has 5 MB
MOST_CELLS = 2000


class Unreadable(ValueError):
    """Why a file can't be read as a notebook, in one line."""


@dataclass(frozen=True)
class Cell:
    """A code cell, with the name that nbgrader knows it by where it still has one."""

    source: str
    grade_id: str = ""


@dataclass(frozen=True)
class Notebook:
    """The first heading, the code cells in order, every grade_id, and what is worth telling."""

    title: str
    cells: Sequence[Cell]
    grade_ids: frozenset[str]
    remarks: Sequence[str] = ()


def read(data: bytes) -> Notebook:
    """The notebook in these bytes; Unreadable says in a line what is wrong with them."""
    content, remarks = _json(data)
    cells = list(_cells(content))
    if len(cells) > MOST_CELLS:
        raise Unreadable(f"the notebook has {len(cells)} cells; at most {MOST_CELLS} are read")
    code = [Cell(_source(c), _grade_id(c)) for c in cells if c.get("cell_type") == "code"]
    titles = (_heading(_source(c)) for c in cells if c.get("cell_type") != "code")
    ids = frozenset(filter(None, map(_grade_id, cells)))
    return Notebook(next(filter(None, titles), ""), code, ids, remarks)


def _json(data: bytes) -> tuple[dict[str, Any], list[str]]:
    if len(data) > LARGEST:
        raise Unreadable(f"the file has {len(data):,} bytes; at most {LARGEST:,} are read")
    if not data.strip(b"\0 \t\r\n"):
        raise Unreadable("the file is empty")
    text, remarks = _text(data)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable("the file is not JSON, so it is no notebook") from None
    if not isinstance(content, dict) or not any(_cells(content)):
        raise Unreadable("the file is JSON, but no notebook: it has no cells")
    return content, remarks


def _text(data: bytes) -> tuple[str, list[str]]:
    """The text in UTF-8, UTF-16 or UTF-32, with or without a byte order mark."""
    encoding = json.detect_encoding(data)
    try:
        return data.decode(encoding), []
    except UnicodeDecodeError:
        text = data.decode(encoding, errors="replace")
        return text, [f"{text.count(chr(0xFFFD))} characters are not in {encoding}"]


def _cells(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The cells of a notebook of format 4, or of format 3, where sheets hold them."""
    sheets = content.get("worksheets", [content])
    for sheet in sheets if isinstance(sheets, list) else []:
        cells = sheet.get("cells") if isinstance(sheet, dict) else None
        known = cells if isinstance(cells, list) else []
        yield from (cell for cell in known if isinstance(cell, dict))


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source", cell.get("input", ""))
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    return source.replace("\r\n", "\n").replace("\r", "\n") if isinstance(source, str) else ""


def _grade_id(cell: dict[str, Any]) -> str:
    metadata = cell.get("metadata")
    nbgrader = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    grade_id = nbgrader.get("grade_id") if isinstance(nbgrader, dict) else None
    return grade_id if isinstance(grade_id, str) else ""


def _heading(source: str) -> str:
    found = re.search(r"^#+\s+(.+?)\s*$", source, re.MULTILINE)
    return found[1] if found else ""
