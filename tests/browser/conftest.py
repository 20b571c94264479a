"""A browser, and the pages of the book in it.

    make browser

builds the pages and runs what stands here on them; `make test` runs it on the pages that it has
just built. By hand, on pages that are there: python -m pytest tests/browser --book FOLDER

The browser is the machine's own Chromium or Chrome.
"""

import contextlib
import functools
import http.server
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tools import address as known
from tools import browser as machine

ROOT = Path(__file__).resolve().parents[2]
PIECES = ("01_attention_formula", "03_multi_head_attention", "04_masking")
WIDE = {"width": 1280, "height": 900}
NARROW = {"width": 375, "height": 740}
LOUD = ("error", "warning")
PREFIX = urlsplit(known.pages()).path


def pytest_addoption(parser):
    parser.addoption("--book", metavar="FOLDER", default="_build/html", help="the pages to look at")


def folder(config):
    found = (ROOT / config.getoption("book")).resolve()
    if not (found / "index.html").is_file():
        raise pytest.UsageError(f"no pages in {found}: `make browser` builds them")
    return found


def paths(built):
    """Every page, as its address goes on after the one of the book."""
    found = (path.relative_to(built) for path in built.rglob("*.html"))
    return sorted(path.as_posix() for path in found if path.parts[0] != "_static")


def pytest_generate_tests(metafunc):
    """The tests that ask for a `path` are run for every page, all of one page by one worker."""
    if "path" in metafunc.fixturenames:
        pages = [
            pytest.param(path, marks=pytest.mark.xdist_group(path), id=path)
            for path in paths(folder(metafunc.config))
        ]
        metafunc.parametrize("path", pages)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the pages in the folder that they are published in, so that no link leaves it."""

    def translate_path(self, path):
        inside = path.startswith(f"{PREFIX}/")
        return super().translate_path(path.removeprefix(PREFIX) if inside else "/not of the book")

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        """A browser that closes a page lets go of what it had asked for: that is no error."""


@contextlib.contextmanager
def served(pages):
    """The address of a folder of pages, without a slash at its end."""
    handler = functools.partial(Quiet, directory=str(pages))
    with Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}{PREFIX}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def site(pytestconfig):
    """The folder of the pages."""
    return folder(pytestconfig)


@pytest.fixture(scope="session")
def address(site):
    with served(site) as url:
        yield url


@pytest.fixture(scope="session")
def browser():
    if reason := machine.lacking():
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=machine.find(), args=machine.FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def usual(browser):
    """The context of most visits: what was loaded once is at hand for the next."""
    with new_context(browser) as context:
        yield context


def new_context(browser, **options):
    context = browser.new_context(**{"viewport": WIDE, **options})
    context.set_default_timeout(30_000)
    context.set_default_navigation_timeout(60_000)
    return context


@pytest.fixture
def visit(browser, usual, address):
    """visit(path, **options) opens a page of the book; with options, in a context of its own.

    The test fails if the page writes an error or a warning to its console, or asks any other server
    for anything.
    """
    opened, faults = [], []

    def visited(path="book/play.html", **options):
        context = new_context(browser, **options) if options else usual
        page = context.new_page()
        opened.append(context if options else page)
        listen(page, address, faults)
        page.goto(f"{address}/{path}")
        return page

    yield visited
    for each in opened:
        each.close()
    assert faults == []


def listen(page, address, faults):
    """Note what the page complains of, and what it asks of other servers."""
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda m: faults.append(f"{m.type}: {m.text}") if m.type in LOUD else None)
    page.on("requestfailed", lambda request: faults.append(f"failed: {request.url}"))
    page.on("response", lambda r: faults.append(f"{r.status}: {r.url}") if r.status > 399 else None)
    page.on("request", lambda r: None if own(r.url, address) else faults.append(f"asks {r.url}"))


def own(url, address):
    return url.startswith((f"{address}/", "data:", "blob:"))


@pytest.fixture
def page(visit):
    return visit()
