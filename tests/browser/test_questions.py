"""The questions of the chapters: every choice unfolds, whoever reads and with whatever."""

import re

import pytest

from tools import rules

from . import conftest
from .test_every_page import LOOK, barriers

NOTEBOOKS = {path.stem: path for path in sorted((conftest.ROOT / "book").glob("*.ipynb"))}
VERDICTS = tuple(verdict.strip(" *") for verdict in (rules.RIGHT, rules.WRONG))


def choices(page):
    summary = page.locator("summary", has_text=re.compile(r"^[A-D]\. "))
    return page.locator("article details").filter(has=summary)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_choice_unfolds_by_keyboard_and_without_script(browser, address, name):
    text = "".join(cell.source for _, cell in rules.Page(NOTEBOOKS[name]).markdown)
    written = text.count(rules.RIGHT) + text.count(rules.WRONG)
    with conftest.new_context(browser, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"{address}/book/{name}.html")
        found = choices(page).all()
        assert len(found) == written > 0
        for choice in found:
            reason = choice.locator("p").first
            assert not reason.is_visible()
            choice.locator("summary").press("Enter")
            assert reason.is_visible()
            assert reason.inner_text().startswith(VERDICTS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_what_unfolds_shuts_nobody_out_and_fits_a_phone(visit, name):
    page = visit(f"book/{name}.html", viewport=conftest.NARROW, reduced_motion="reduce")
    page.evaluate("document.querySelectorAll('details').forEach(each => (each.open = true))")
    page.evaluate(LOOK)
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        page.evaluate("look.settled()")
        assert choices(page).last.locator("p").first.is_visible()
        assert barriers(page) == [], theme
        assert page.evaluate("document.documentElement.scrollWidth") == conftest.NARROW["width"]
