"""The questions of the chapters: every choice unfolds, whoever reads and with whatever.

What unfolds is looked at with the rest of its page, in test_every_page.py.
"""

import re

import pytest

from tools import rules

from . import conftest

NOTEBOOKS = {path.stem: path for path in sorted((conftest.ROOT / "book").glob("*.ipynb"))}
VERDICTS = tuple(verdict.strip(" *") for verdict in (rules.RIGHT, rules.WRONG))


def choices(page):
    summary = page.locator("summary", has_text=re.compile(r"^[A-D]\. "))
    return page.locator("article details").filter(has=summary)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_choice_unfolds_by_keyboard_and_without_script(bare, address, name):
    text = "".join(cell.source for _, cell in rules.Page(NOTEBOOKS[name]).markdown)
    written = text.count(rules.RIGHT) + text.count(rules.WRONG)
    bare.goto(f"{address}/book/{name}.html")
    found = choices(bare).all()
    assert len(found) == written > 0
    for choice in found:
        reason = choice.locator("p").first
        assert not reason.is_visible()
        choice.locator("summary").press("Enter")
        assert reason.is_visible()
        assert reason.inner_text().startswith(VERDICTS)
