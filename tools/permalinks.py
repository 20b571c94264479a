"""The addresses of the book that others may link to: pages, sections, figures, names of the API.

    python -m tools.permalinks     add those of the built book to tests/addresses.txt

A test holds every address in the list to lead somewhere for good; this command never takes one out.
"""

import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parents[1]
HTML = ROOT / "_build" / "html"
LIST = ROOT / "tests" / "addresses.txt"


@cache
def parsed(path: Path) -> BeautifulSoup:
    """A page that does not change any more, read once."""
    return BeautifulSoup(path.read_text("utf-8"), "html.parser")


def of(html: Path) -> set[str]:
    """The addresses that a built book offers."""
    found = {"index.html"}
    for path in (html / "book").rglob("*.html"):
        page = path.relative_to(html).as_posix()
        named = parsed(path).select("article section[id], article figure[id], article dt[id]")
        found |= {page, *(f"{page}#{tag['id']}" for tag in named)}
    return found


def lost(listed: Iterable[str], html: Path) -> list[str]:
    """Those addresses that lead nowhere in a built book. Every anchor of a page will do."""
    known: dict[str, set[str]] = {}
    result = []
    for address in listed:
        page, _, anchor = address.partition("#")
        if page not in known:
            path, known[page] = html / page, set()
            if path.is_file():
                tags = parsed(path).select("article [id]")
                known[page] = {"", *(str(tag["id"]) for tag in tags)}
        if anchor not in known[page]:
            result.append(address)
    return result


def listed() -> list[str]:
    return LIST.read_text("utf-8").split()


def main() -> int:
    if not HTML.is_dir():
        print("there are no pages to list: `make book` builds them", file=sys.stderr)
        return 2
    old = set(listed())
    new = of(HTML) - old
    LIST.write_text("".join(f"{address}\n" for address in sorted(old | new)), "utf-8")
    print(f"{len(new)} addresses added, {len(old | new)} in {LIST.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
