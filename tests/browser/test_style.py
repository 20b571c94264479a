"""What the book's style sheet promises of every page, seen on one that has a bit of everything."""


def test_code_in_a_sentence_breaks_where_it_is_wider_than_a_phone(visit):
    page = visit("book/assignments/for_instructors.html", viewport={"width": 375, "height": 740})
    longest = "all => Math.max(...all.map(code => code.textContent.length))"
    assert page.eval_on_selector_all("p code", longest) > 40  # there is such code
    assert page.evaluate("document.documentElement.scrollWidth") == 375
