"""How fast, accessible and easy to find the built pages are, as Google's Lighthouse judges.

    python -m tools.lighthouse                 the pages in PAGES, three runs each
    python -m tools.lighthouse book/play       this page

The pages of _build/html are served compressed, as a web server does. Whatever else a machine does
makes a page slower and never faster, so of three runs the fastest counts; of what does not depend
on time, the worst. Below 95 of 100 with a desktop's screen and network fails; what a slow phone
would get is told beside it. Lighthouse measures how fast the machine is, too: where that is slow,
the time that scripts took says nothing about a page, and is not judged.

Needs Node.js 18 or later, whose npx fetches Lighthouse, and Chromium or Chrome.
"""

import argparse
import functools
import gzip
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO

from tools import browser

ROOT = Path(__file__).resolve().parents[1]
HTML = ROOT / "_build" / "html"
VERSION = "12.2.3"  # the last that needs no Node.js 22
# One of each kind, and of chapters those with the most formulas, figures and elements.
PAGES = (
    "book/intro",
    "book/check_your_class",
    "book/01_attention_formula",
    "book/03_multi_head_attention",
    "book/05b_gradient_of_attention",
    "book/09_decoding",
    "book/play",
    "book/assignments/index",
    "book/museum_layers",
    "book/glossary",
    "book/api",
    "search",
    "404",
)
CATEGORIES = ("performance", "accessibility", "best-practices", "seo")
PRESETS = {"desktop": ("--preset=desktop",), "mobile": ()}
LEAST = 95
RUNS = 3
FAST_ENOUGH = 500  # of Lighthouse's benchmark; an idle laptop reaches 1000 to 2500
METRICS = (
    "first-contentful-paint",
    "largest-contentful-paint",
    "total-blocking-time",
    "cumulative-layout-shift",
)


@functools.cache
def compressed(path: Path) -> bytes:
    """A file as it travels, made once: its making would be measured with the page."""
    return gzip.compress(path.read_bytes())


class Compressing(SimpleHTTPRequestHandler):
    """Serves a folder as GitHub Pages does: text compressed, connections kept open."""

    protocol_version = "HTTP/1.1"

    def send_head(self) -> BytesIO | BinaryIO | None:
        path = Path(self.translate_path(self.path))
        kind = self.guess_type(str(path))
        if not path.is_file():
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        packed = kind.startswith("text/") or kind.endswith(("javascript", "json", "svg+xml"))
        body = compressed(path) if packed else path.read_bytes()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "max-age=600")
        self.end_headers()
        return BytesIO(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    for kind in ("html", "css", "js", "svg"):
        for path in folder.rglob(f"*.{kind}"):
            compressed(path)
    handler = functools.partial(Compressing, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@dataclass(frozen=True)
class Verdict:
    page: str
    preset: str
    scores: dict[str, int]  # of each category, from 0 to 100
    benchmark: float  # how fast the machine was in the fastest run
    notes: list[str]  # what was measured, and what costs points besides speed

    @property
    def low(self) -> list[str]:
        """The categories that are below what is promised."""
        if self.preset != "desktop":
            return []
        judged = CATEGORIES if self.benchmark >= FAST_ENOUGH else CATEGORIES[1:]
        return [name for name in judged if self.scores[name] < LEAST]

    def __str__(self) -> str:
        cells = "".join(f"{self.scores[name]:{len(name) + 2}}" for name in CATEGORIES)
        return f"{self.page:30} {self.preset:8}{cells}{self.benchmark:11.0f}"


def verdict(page: str, preset: str, reports: Sequence[dict[str, Any]]) -> Verdict:
    def score(report: dict[str, Any], name: str) -> int:
        share: float = report["categories"][name]["score"]
        return round(100 * share)

    speed, *others = CATEGORIES
    fastest = max(reports, key=lambda report: score(report, speed))
    worst = {name: min(reports, key=lambda report: score(report, name)) for name in others}
    scores = {name: score(report, name) for name, report in {speed: fastest, **worst}.items()}
    audits = fastest["audits"]
    told = (f"{audits[name]['title']} {audits[name]['displayValue']}" for name in METRICS)
    notes = [", ".join(told)]
    for name, report in worst.items():
        audits = report["audits"]
        for ref in report["categories"][name]["auditRefs"]:
            if ref["weight"] and audits[ref["id"]]["score"] == 0:
                notes.append(f"{ref['id']}: {audits[ref['id']]['title']}")
    return Verdict(page, preset, scores, fastest["environment"]["benchmarkIndex"], notes)


def report(command: Sequence[str], address: str, preset: str, chromium: str) -> dict[str, Any]:
    done = subprocess.run(
        [
            *command,
            address,
            *PRESETS[preset],
            "--quiet",
            "--output=json",
            f"--only-categories={','.join(CATEGORIES)}",
            f"--chrome-flags=--headless=new {' '.join(browser.FLAGS)}",
        ],
        env={**os.environ, "CHROME_PATH": chromium},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit("Lighthouse failed: the lines above say why")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def lacking(html: Path = HTML) -> str | None:
    """What keeps Lighthouse from running here."""
    if not html.is_dir():
        return "there are no pages to look at: `make book` builds them"
    if shutil.which("npx") is None:
        return "no npx here: install Node.js 18 or later (Debian and Ubuntu: apt install npm)"
    if browser.find() is None:
        return "no Chromium or Chrome here (Debian and Ubuntu: apt install chromium)"
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.lighthouse",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pages", nargs="*", default=PAGES, help="without .html")
    pages = parser.parse_args(arguments).pages
    if why := lacking():
        print(why, file=sys.stderr)
        return 2
    command = (str(shutil.which("npx")), "--yes", f"lighthouse@{VERSION}")
    chromium = str(browser.find())
    print(f"{'page':30} {'screen':8}", *CATEGORIES, "benchmark", sep="  ", flush=True)
    found = []
    with served(HTML) as address:
        for page, preset in product(pages, PRESETS):
            url = f"{address}/{page}.html"
            reports = [report(command, url, preset, chromium) for _ in range(RUNS)]
            found.append(verdict(page, preset, reports))
            print(found[-1], *found[-1].notes, sep="\n    ", flush=True)
    return judge(found)


def judge(found: Sequence[Verdict]) -> int:
    if slow := sum(one.benchmark < FAST_ENOUGH for one in found):
        print(f"{slow} of {len(found)} not judged by speed: the machine was too slow or too busy")
    low = [f"{one.page} in {', '.join(one.low)}" for one in found if one.low]
    if low:
        print(f"below {LEAST} with a desktop's screen: {'; '.join(low)}")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
