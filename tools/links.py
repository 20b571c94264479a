"""Follow the book's links to other sites, and say which lead nowhere.

    make links

Sphinx's own checker follows them, over all pages and docstrings of the API. What it calls broken
is told apart: a page that is gone, which has to be mended, and one that may be there but does not
answer a program, which a person should look at. Without a network nothing can be said.
"""

import json
import re
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools import summary
from tools.steps import ROOT

SETTINGS = {
    "latex_individualpages": False,
    "nb_execution_mode": "off",  # a link needs no output
    "linkcheck_timeout": 20,
    "linkcheck_retries": 2,
    "linkcheck_report_timeouts_as_broken": False,
    "linkcheck_ignore": [],  # so that "ignored" is a site that is busy
}
# Answers of a site that is there and will not talk to a program, or not now.
REFUSED = {"401", "403", "405", "418", "429", "500", "502", "503", "504", "520", "999"}


@dataclass(frozen=True, order=True)
class Link:
    page: str
    line: int
    address: str
    says: str


@dataclass
class Found:
    """Every link once a page, by what came of it."""

    working: set[Link]
    gone: set[Link]
    silent: set[Link]
    moved: set[Link]

    def verdict(self) -> str:
        count = f"{len(self.working)} links lead somewhere, {len(self.gone)} nowhere"
        return f"{count}, {len(self.silent)} did not answer, {len(self.moved)} have moved for good."


def sort(records: Iterable[dict[str, Any]]) -> Found:
    """What Sphinx wrote of each link."""
    found = Found(set(), set(), set(), set())
    for record in records:
        link = Link(record["filename"], record["lineno"], record["uri"], record["info"].strip())
        status = record["status"]
        if status == "redirected":
            # Only these two say that a link should be written anew.
            (found.moved if record["code"] in (301, 308) else found.working).add(link)
        elif status == "working":
            found.working.add(link)
        elif status in ("timeout", "ignored") or (status == "broken" and refused(link.says)):
            found.silent.add(link)
        elif status == "broken":
            found.gone.add(link)
    return found


def refused(says: str) -> bool:
    code = re.match(r"(\d{3}) (Client|Server) Error", says)
    return code is not None and code[1] in REFUSED


def follow(book: Path = ROOT) -> Found:
    """Follow the links of a book, whose settings and contents lie in this folder."""
    from jupyter_book.sphinx import build_sphinx  # takes seconds

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "links"
        result = build_sphinx(
            str(book),
            str(out),
            noconfig=True,
            path_config=str(book / "_config.yml"),
            confoverrides=dict(SETTINGS),
            builder="linkcheck",
            really_quiet=True,
        )
        if isinstance(result, Exception):
            sys.exit("The book could not be read: `make book` says why.")
        lines = (out / "output.json").read_text(encoding="utf-8").splitlines()
    return sort(map(json.loads, lines))


def report(found: Found) -> int:
    if not (found.working or found.moved) and (found.gone or found.silent):
        summary.tell("No site could be reached: without a network no link can be followed.")
        return 1
    summary.tell(found.verdict())
    for title, links in (
        ("They lead nowhere", found.gone),
        ("They did not answer: look yourself", found.silent),
        ("They have moved for good", found.moved),
    ):
        if links:
            rows = [(f"{link.page}:{link.line}", link.address, link.says) for link in sorted(links)]
            summary.tell(f"{title}:\n\n{summary.table(('place', 'link', 'answer'), rows)}")
    return 1 if found.gone else 0


if __name__ == "__main__":
    sys.exit(report(follow()))
