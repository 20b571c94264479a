"""Pictures of every page, light and dark, on a desk and on a phone.

    make screenshots

puts them into _build/screenshots. A long page comes in pieces, since browsers draw no picture that
is taller than 16,384 points.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tools import browser as machine
from tools import stored

from . import conftest

TO = stored.ROOT / "_build" / "screenshots"
LOOK = Path(__file__).with_name("look.js").read_text(encoding="utf-8")
TALLEST = 8000


def take(page, size, path):
    """Both themes of an open page, in pieces."""
    page.set_viewport_size(size)
    name = path.removesuffix(".html").replace("/", "-")
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        page.evaluate("look.rested()")
        height = page.evaluate("document.documentElement.scrollHeight")
        for number, top in enumerate(range(0, height, TALLEST), start=1):
            page.screenshot(
                path=TO / f"{name}-{size['width']}-{theme}-{number}.png",
                full_page=True,
                clip={
                    "x": 0,
                    "y": top,
                    "width": size["width"],
                    "height": min(TALLEST, height - top),
                },
            )


def main():
    if reason := machine.lacking():
        sys.exit(reason)
    shutil.rmtree(TO, ignore_errors=True)
    with sync_playwright() as started, conftest.served(stored.PAGES) as address:
        browser = started.chromium.launch(executable_path=machine.find(), args=machine.FLAGS)
        page = conftest.new_context(browser, reduced_motion="reduce").new_page()
        for path in conftest.paths(stored.PAGES):
            page.goto(f"{address}/{path}")
            page.evaluate(LOOK)
            for size in (conftest.WIDE, conftest.NARROW):
                take(page, size, path)
        browser.close()
    print(f"{len(list(TO.iterdir()))} pictures in {TO}")


if __name__ == "__main__":
    main()
