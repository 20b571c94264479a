"""What the book's style sheet promises of every page, seen on one that has a bit of everything."""


def test_code_in_a_sentence_breaks_where_it_is_wider_than_a_phone(visit):
    page = visit("book/assignments/for_instructors.html", viewport={"width": 375, "height": 740})
    longest = "all => Math.max(...all.map(code => code.textContent.length))"
    assert page.eval_on_selector_all("p code", longest) > 40  # there is such code
    assert page.evaluate("document.documentElement.scrollWidth") == 375


ON_ONE_LINE = "all => all.map(it => it.getClientRects().length === 1)"


def test_a_formula_keeps_the_mark_behind_it_and_short_code_its_hyphens(visit):
    page = visit("book/assignments/for_instructors.html", viewport={"width": 375, "height": 740})
    code = page.eval_on_selector_all("code.together", ON_ONE_LINE)
    page = visit("book/07_position.html", viewport={"width": 375, "height": 740})
    page.evaluate("MathJax.startup.promise")
    formulas = page.eval_on_selector_all(".together:has(mjx-container)", ON_ONE_LINE)
    assert min(len(code), len(formulas)) > 5
    assert all(code + formulas)
