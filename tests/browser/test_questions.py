"""The questions of the chapters: every choice unfolds, whoever reads and with whatever.

What unfolds is looked at with the rest of its page, in test_every_page.py.
"""

import re

import pytest

from tools import rules

from . import conftest

NOTEBOOKS = {path.stem: path for path in sorted((conftest.ROOT / "book").glob("*.ipynb"))}
VERDICTS = tuple(verdict.strip(" *") for verdict in (rules.RIGHT, rules.WRONG))


REASONS = """choices => choices.map(choice => choice.querySelector("p")).map(
    reason => [reason.checkVisibility({ visibilityProperty: true }), reason.innerText])"""
FOCUS = "(choices, place) => choices[place].querySelector('summary').focus()"


def choices(page):
    summary = page.locator("summary", has_text=re.compile(r"^[A-D]\. "))
    return page.locator("article details").filter(has=summary)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_choice_unfolds_by_keyboard_and_without_script(bare, address, name):
    text = "".join(cell.source for _, cell in rules.Page(NOTEBOOKS[name]).markdown)
    written = text.count(rules.RIGHT) + text.count(rules.WRONG)
    bare.goto(f"{address}/book/{name}.html")
    found = choices(bare)
    assert [shown for shown, _ in found.evaluate_all(REASONS)] == [False] * written
    assert written > 0
    for place in range(written):
        found.evaluate_all(FOCUS, place)
        bare.keyboard.press("Enter")
    for shown, text in found.evaluate_all(REASONS):
        assert shown
        assert text.startswith(VERDICTS)
