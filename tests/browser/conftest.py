"""A browser, and the page "Play with attention" as the book's own theme shows it.

    python -m pip install -r tools/browser.txt
    python -m pytest tests/browser

The browser itself is the machine's Chromium or Chrome. Without one, or without Playwright,
everything here is skipped. A test that opens a page fails if the page writes an error or a warning
to its console, or asks any other server for anything.
"""

import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tools import notebooks, rules

ROOT = Path(__file__).resolve().parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PIECES = ("01_attention_formula", "03_multi_head_attention", "04_masking")
OTHERS = ("02_single_head_attention", "03b_how_heads_get_mixed_up")
CONFIG = f"""
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_book_theme", "tools.sphinx_pages"]
html_theme = "sphinx_book_theme"
html_static_path = [{str(ROOT / "book" / "_static")!r}]
html_favicon = {str(ROOT / "book" / "_static" / "favicon.svg")!r}
html_css_files = ["book.css"]
html_context = {{"default_mode": "auto"}}
suppress_warnings = ["myst.xref_missing"]
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The page and the pieces of the chapters, built by the book's theme without its chapters."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    (source / "conf.py").write_text(CONFIG, encoding="utf-8")
    shutil.copy(ROOT / "book" / "play.md", source)
    shutil.copy(ROOT / "book" / "assignments" / "for_instructors.md", source)
    for name in PIECES:
        page = rules.Page(ROOT / "book" / f"{name}.ipynb")
        cells = [cell.source for _, cell in page.markdown if "attention-play" in cell.source]
        (source / f"{name}.md").write_text("\n\n".join([f"# {name}", *cells]), "utf-8")
    for name in OTHERS:
        (source / f"{name}.md").write_text(f"# {name}\n", encoding="utf-8")
    contents = "\n".join(
        ("# Contents\n", "```{toctree}", "play", *PIECES, *OTHERS, "for_instructors", "```")
    )
    (source / "index.md").write_text(contents, encoding="utf-8")
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(source), str(built)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(notebooks.ROOT)})
    return built


@pytest.fixture(scope="session")
def address(site):
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is missing: pip install -r tools/browser.txt"
    )
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on the path")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, address):
    """visit(path, **options of the context) opens a page of the site, in a context of its own."""
    contexts, faults = [], []

    def opened(path="play.html", **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        context.set_default_timeout(10_000)
        context.set_default_navigation_timeout(60_000)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda m: faults.append(m.text) if m.type in LOUD else None)
        page.on("request", lambda r: None if is_own(r.url) else faults.append(r.url))
        page.goto(f"{address}/{path}")
        return page

    def is_own(url):
        return url.startswith((address, "data:"))

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


LOUD = ("error", "warning")


@pytest.fixture
def page(visit):
    return visit()
