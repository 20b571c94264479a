"""What the book's style sheet promises of every page, seen on one that has a bit of everything."""

from . import conftest


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


LATE = """
window.late = [];
new MutationObserver((changes) => {
    const { theme } = document.documentElement.dataset;
    if (document.body && changes.some((it) => it.oldValue !== theme)) late.push(theme);
}).observe(document, { subtree: true, attributeOldValue: true, attributeFilter: ["data-theme"] });
"""


def test_light_or_dark_is_chosen_before_a_page_is_drawn(browser, address):
    with conftest.new_context(browser, color_scheme="dark") as context:
        page = context.new_page()
        page.add_init_script(LATE)
        page.goto(f"{address}/book/intro.html")
        assert page.evaluate("[document.documentElement.dataset.theme, late]") == ["dark", []]


def test_room_is_kept_for_what_a_script_makes(browser, address):
    with conftest.new_context(browser) as context:
        page = context.new_page()
        page.route("**/play.js*", lambda route: route.abort())
        page.goto(f"{address}/book/play.html")
        below = page.locator("#what-you-see").bounding_box()
        assert below["y"] > conftest.WIDE["height"]


STEPS = """
window.steps = [];
new MutationObserver((changes) => {
    const added = changes.flatMap((it) => [...it.addedNodes]);
    const formulas = added.filter((it) => it.localName === "mjx-container");
    if (formulas.length) steps.push(formulas.length);
}).observe(document, { subtree: true, childList: true });
"""


def test_formulas_are_set_a_few_at_a_time(browser, address):
    with conftest.new_context(browser) as context:
        page = context.new_page()
        page.add_init_script(STEPS)
        page.goto(f"{address}/book/05b_gradient_of_attention.html")
        page.evaluate("MathJax.startup.promise")
        steps, all_ = page.evaluate("[steps, document.querySelectorAll('.math').length]")
    assert max(steps) <= 20
    assert sum(steps) == all_ > 40
