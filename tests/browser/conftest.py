"""A browser, and the pages of the book in it.

    make browser

builds the pages and runs what stands here on them, as `make test` does last. By hand, on pages that
are there: python -m pytest tests/browser --book FOLDER

The browser is the machine's own Chromium or Chrome.
"""

import contextlib
import functools
import http.server
import re
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
    """Every page that stays, as its address goes on after the one of the book.

    Of the pages that show the package's source the list of them and the longest stand for the rest:
    Sphinx makes them all alike.
    """
    found = [path.relative_to(built) for path in built.rglob("*.html")]
    sources = [path for path in found if path.parts[0] == "_modules"]
    longest = max(sources, key=lambda path: (built / path).stat().st_size)
    stay = [path for path in found if path.parts[0] not in ("_static", "_modules")]
    pages = {path.as_posix() for path in stay} - dict(sending(built)).keys()
    return sorted(pages | {"_modules/index.html", longest.as_posix()})


REFRESH = re.compile(r'http-equiv="refresh" content="0; url=([^"]+)')


def sending(built):
    """The pages that lead to another at once, and where to."""
    for path in [built / "index.html", *(built / "book").rglob("*.html")]:
        if found := REFRESH.search(path.read_text(encoding="utf-8")):
            yield path.relative_to(built).as_posix(), found[1]


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


def new_context(browser, **options):
    context = browser.new_context(**{"viewport": WIDE, **options})
    context.set_default_timeout(30_000)
    context.set_default_navigation_timeout(60_000)
    return context


@pytest.fixture(scope="session")
def tab(browser):
    """The page that most visits share: to open another takes longer than what they look at."""
    with new_context(browser) as context:
        yield context.new_page()


@pytest.fixture(scope="session")
def bare(browser):
    """A page without scripts."""
    with new_context(browser, java_script_enabled=False) as context:
        yield context.new_page()


BLANK = "about:blank"
EMULATED = {"color_scheme": "light", "reduced_motion": "no-preference"}


@contextlib.contextmanager
def emptied(tab):
    """The shared page, which afterwards shows nothing and remembers nothing."""
    try:
        yield tab
    finally:
        if tab.url != BLANK:
            tab.evaluate("localStorage.clear(), sessionStorage.clear()")
            tab.goto(BLANK)


def set_up(page, viewport=WIDE, **media):
    page.set_viewport_size(viewport)
    page.emulate_media(**EMULATED | media)


@pytest.fixture
def visit(browser, tab, address):
    """visit(path, **options) opens a page of the book.

    The first visit of a test gets the shared page, unless it asks for what only a context of its
    own can have. The test fails if the page writes an error or a warning to its console, or asks
    any other server for anything.
    """
    faults = []
    free = [tab]
    with contextlib.ExitStack() as stack:

        def visited(path="book/play.html", **options):
            screen = {key: options.pop(key) for key in ("viewport", *EMULATED) if key in options}
            if free and not options:
                page = stack.enter_context(emptied(free.pop()))
            else:
                page = stack.enter_context(new_context(browser, **options)).new_page()
            set_up(page, **screen)
            stack.enter_context(listening(page, address, faults))
            page.goto(f"{address}/{path}")
            return page

        yield visited
    assert faults == []


@contextlib.contextmanager
def listening(page, address, faults):
    """Note what the page complains of, and what it asks of other servers."""
    heard = {
        "pageerror": lambda error: faults.append(str(error)),
        "console": lambda m: faults.append(f"{m.type}: {m.text}") if m.type in LOUD else None,
        "requestfailed": lambda r: None if was_left(r) else faults.append(f"failed: {r.url}"),
        "response": lambda r: faults.append(f"{r.status}: {r.url}") if r.status > 399 else None,
        "request": lambda r: None if own(r.url, address) else faults.append(f"asks {r.url}"),
    }
    for event, note in heard.items():
        page.on(event, note)
    yield
    for event, note in heard.items():
        page.remove_listener(event, note)


def was_left(request):
    """Whether the page was left before its icon, which comes after all else, had arrived."""
    return request.url.endswith("/favicon.svg") and request.failure == "net::ERR_ABORTED"


def own(url, address):
    return url.startswith((f"{address}/", "data:", "blob:"))


@pytest.fixture
def page(visit):
    return visit()
