"""The page "Play with attention", in a real browser."""

import json
import re

import pytest
import torch
from matplotlib import colormaps

from mini_attention import plots
from mini_attention.mistakes import MISTAKES
from tools import sphinx_pages

from . import conftest, states

CASES = [states.drawn(seed) for seed in range(240)]
ZEROS = "weights 0, output 0."
WRONG = [
    "softmax over queries",
    "softmax twice",
    "mask inverted",
    "mask multiplied",
    "mask after softmax",
    "split by view",
    "merged by view",
    "attends over heads",
]


def computed(page, cases):
    return page.evaluate("cases => cases.map(attentionPlay.compute)", cases)


def assert_equal(got, want):
    assert want.isfinite().all()
    got = torch.tensor(got, dtype=torch.float64).reshape(want.shape)
    torch.testing.assert_close(got, want, atol=1e-12, rtol=1e-12)


def table(page, caption):
    """The numbers that a reader sees in a table: row name -> texts of its cells."""
    found = page.locator("table", has=page.locator("caption", has_text=re.compile(rf"{caption}\b")))
    script = """tables => tables.map(table => [...table.tBodies[0].rows].map(
        row => [...row.cells].map(cell => cell.firstChild.textContent)))"""
    [rows] = found.evaluate_all(script)
    return {name: cells for name, *cells in rows}


def shown(number):
    """As the book prints a number: two decimals, and a true minus."""
    text = f"{round(number, 6):.2f}"
    return text.replace("-0.00", "0.00").replace("-", "−")


@pytest.fixture(scope="module")
def tab(browser):
    """The page that the visits of these tests share, with a clock that can be turned on."""
    with conftest.new_context(browser) as context:
        page = context.new_page()
        page.clock.install()
        yield page


@pytest.fixture(scope="module")
def play(tab, address):
    """The page for tests that ask its script alone, and leave it as it is."""
    faults, page = [], tab.context.new_page()
    with conftest.listening(page, address, faults):
        page.goto(f"{address}/book/play.html")
        yield page
    assert faults == []


def said(page):
    """What is said when the reader has paused."""
    page.clock.run_for(600)
    return page.get_by_role("status").inner_text()


def field(page, label):
    return page.get_by_label(label, exact=True)


# The arithmetic


def test_the_cases_hold_what_could_go_wrong():
    masks = [states.mask_of(case) for case in CASES]
    empty = [mask for mask in masks if not mask.any(-1).all()]
    assert len(CASES) >= 200
    assert len(empty) >= 40
    assert sum(bool(mask.all()) for mask in masks) >= 20
    assert {case["heads"] for case in CASES} == {1, 2, 3}
    assert {case["scale"] for case in CASES} == set(states.SCALES)
    assert sum(len(case["q"]) != len(case["k"]) for case in CASES) >= 100
    assert sum(len(case["q"][0]) != len(case["v"][0]) for case in CASES) >= 100


def test_the_browser_computes_what_the_package_computes(play):
    for case, got in zip(CASES, computed(play, CASES), strict=True):
        want, mask = states.expected(case), states.mask_of(case)
        assert got["mask"] == mask.tolist()
        assert_equal([part["scores"] for part in got["parts"]], want["scores"])
        assert_equal([part["weights"] for part in got["parts"]], want["weights"])
        assert_equal(got["output"], want["output"])
        for part, scores in zip(got["parts"], want["scores"], strict=True):
            masked = torch.tensor(part["masked"], dtype=torch.float64)
            assert masked[~mask].eq(-torch.inf).all()
            torch.testing.assert_close(masked[mask], scores[mask], atol=1e-12, rtol=1e-12)


def test_a_row_with_nothing_allowed_has_weights_0_and_output_0(play):
    count = 0
    for case, got in zip(CASES, computed(play, CASES), strict=True):
        for i in (~states.mask_of(case).any(-1)).nonzero().flatten().tolist():
            assert all(weight == 0 for part in got["parts"] for weight in part["weights"][i])
            assert all(number == 0 for number in got["output"][i])
            count += 1
    assert count >= 80


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_the_one_that_the_package_collects(play, mistake):
    cases = [states.drawn(seed, mistake) for seed in range(120)]
    # The package's programs shield a key that nobody sees; those of the chapters do not.
    cases = [case for case in cases if states.mask_of(case).any(-2).all()]
    right = [{**case, "mistake": "none"} for case in cases]
    differ = 0
    for case, got, good in zip(cases, computed(play, cases), computed(play, right), strict=True):
        want = states.expected(case)
        assert_equal(got["output"], want["output"])
        if "weights" in want:
            assert_equal([part["weights"] for part in got["parts"]], want["weights"])
        differ += any(
            abs(x - y) > 1e-6
            for row, other in zip(got["output"], good["output"], strict=True)
            for x, y in zip(row, other, strict=True)
        )
    assert len(cases) >= 30
    assert differ >= 10


def test_every_mistake_has_the_name_that_the_package_gives_it(play):
    assert play.evaluate("attentionPlay.MISTAKES") == ["none", *WRONG]
    assert set(WRONG) <= set(MISTAKES)


def test_large_scores_do_not_overflow(play):
    rows = play.evaluate("[[1000, 999, -1e6], [-1e9, -1e9]].map(attentionPlay.softmax)")
    assert_equal(rows[0], torch.tensor([1000, 999, -1e6], dtype=torch.float64).softmax(-1))
    assert rows[1] == [0.5, 0.5]


def test_numbers_are_rounded_as_the_book_rounds_them(play):
    eighths = [n / 8 for n in range(-40, 41)]
    finer = [n / 160 for n in range(-400, 401)]
    thirds = [n / 3 + 1e-13 for n in range(-300, 301)]
    texts = play.evaluate(
        "numbers => numbers.map(attentionPlay.twoDecimals)", eighths + finer + thirds
    )
    assert texts == [shown(number) for number in eighths + finer + thirds]


def test_weights_have_the_colours_of_the_books_maps(play):
    weights = [n / 100 for n in range(101)]
    got = play.evaluate(
        "w => w.map(attentionPlay.colour).map(c => [c, attentionPlay.readableOn(c)])", weights
    )
    for weight, (rgb, text) in zip(weights, got, strict=True):
        want = colormaps[plots.COLOUR_MAP](weight)[:3]
        assert max(abs(a - 255 * b) for a, b in zip(rgb, want, strict=True)) <= 2
        assert text == plots._readable_on(tuple(c / 255 for c in rgb))


# What is shown


def presets(page):
    return page.evaluate("attentionPlay.PRESETS.map(p => ({...p.state, preset: p.id}))")


def test_every_example_shows_the_numbers_of_the_package(page):
    for state in presets(page):
        page.get_by_label("Example").select_option(state["preset"])
        want = states.expected(state)
        output = page.locator(".play-stage-output td > span").all_inner_texts()
        assert output == [shown(x) for x in want["output"].flatten().tolist()]
        if "weights" in want:
            got = page.locator(".play-stage-weights td:not(.play-sum) > span:first-child")
            flat = want["weights"].flatten().tolist()
            assert got.all_inner_texts() == [shown(x) for x in flat]


def test_the_examples_hold_what_they_ask_to_look_at(page):
    def load(name):
        page.get_by_label("Example").select_option(name)

    load("causal")
    assert table(page, "^Output")["cat"] == ["1.00", "0.00", "2.00"]
    assert table(page, "^Weights")["chased"][:2] == ["0.80", "0.20"]
    load("mask-multiplied")
    future = table(page, "^Weights")["cat"][1:5]
    assert sum(map(float, future)) == pytest.approx(0.67, abs=0.02)
    load("mask-after-softmax")
    assert table(page, "^Weights")["cat"][-1] == "0.12"
    load("softmax-twice")
    assert table(page, "^Weights")["who?"][0] == "0.27"
    load("heads")
    assert table(page, "^Weights · head 0")["chased"][0] == "0.50"
    assert table(page, "^Weights · head 1")["chased"][2] == "0.50"
    load("split-by-view")
    assert list(table(page, "^Weights · head 0")) == [
        "cat 0–1", "cat 2–3", "chased 0–1", "chased 2–3", "mouse 0–1",
    ]  # fmt: skip


def test_a_table_has_headers_for_its_rows_and_columns(page):
    for name in ("Scores", "Mask", "Masked scores", "Weights"):
        found = page.locator(
            "table", has=page.locator("caption", has_text=re.compile(rf"^{name}\b"))
        )
        columns = found.locator("thead th[scope=col]").all_inner_texts()
        assert columns[:5] == ["cat", "chased", "mouse", "then", "slept"]
        assert found.locator("tbody th[scope=row]").all_inner_texts() == ["who?", "what?"]


def test_a_changed_query_moves_its_own_row_and_no_other(page):
    before = table(page, "^Weights")
    field(page, "q of “who?”, thing").fill("5")
    after = table(page, "^Weights")
    assert after["who?"] != before["who?"]
    assert after["what?"] == before["what?"]
    rows = page.locator(".play-stage-weights tr", has=page.locator(".play-changed"))
    assert rows.locator("th").all_inner_texts() == ["who?"]


def test_a_masked_cell_is_hatched_and_says_so(page):
    page.get_by_label("causal", exact=True).check()
    page.get_by_label("Example").select_option("causal")
    hidden = page.locator(".play-stage-weights td.play-hidden")
    assert hidden.count() == 10
    assert hidden.first.text_content() == "0.00 masked"
    assert "gradient" in hidden.first.evaluate("cell => getComputedStyle(cell).backgroundImage")


def test_a_word_that_moves_takes_its_numbers_along(page):
    before, weights = table(page, "^Output"), table(page, "^Weights")
    keys = page.locator(".play-words").get_by_label("Keys")
    keys.fill("then mouse cat slept chased")
    keys.press("Enter")
    assert table(page, "^Output") == before
    assert [table(page, "^Weights")["who?"][n] for n in (2, 4, 1, 0, 3)] == weights["who?"][:5]


def test_a_new_word_begins_with_zeros_and_a_renamed_one_keeps_its_numbers(page):
    keys = page.locator(".play-words").get_by_label("Keys")
    for text in ("cat chased rat then slept", "cat chased rat then slept dog"):
        keys.fill(text)
        keys.press("Enter")
    assert field(page, "k of “rat”, lively").input_value() == "1"
    assert field(page, "k of “dog”, lively").input_value() == "0"
    assert len(table(page, "^Weights")["who?"]) == 7  # with the sum


def test_one_pair_is_worked_out(page):
    steps = page.locator(".play-steps li").all_inner_texts()
    assert steps[0].endswith("2 · 1 + (−2) · 0 + 0 · 0 + 2 · 2 = 6")
    assert steps[1].endswith("6 · 0.5 = 3.00 points")
    assert "8.00, of 16.00" in steps[2]
    assert steps[3] == "Weight: 0.50"


def test_an_impossible_state_says_why_and_shows_no_numbers(page):
    page.get_by_label("How it is computed").select_option("attends over heads")
    assert "as many queries as keys: with 2 and 5" in page.locator(".play-trouble").inner_text()
    assert page.locator(".play-stage-weights").is_hidden()
    page.get_by_label("How it is computed").select_option("none")
    assert table(page, "^Weights")["who?"][0] == "0.50"


# The link


def test_a_state_survives_its_link(play):
    kept = CASES + presets(play)
    script = "states => states.map(s => attentionPlay.decode(attentionPlay.encode(s)))"
    assert play.evaluate(script, kept) == kept


def test_a_copied_link_brings_back_what_was_seen(visit, browser):
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    page.get_by_label("Example").select_option("heads")
    field(page, "k of “mouse”, head 1, action").fill("-1.5")
    page.get_by_role("button", name="“slept” may attend to “cat”").click()
    page.get_by_label("Temperature", exact=True).fill("0.7")
    page.get_by_role("button", name="Copy link").click()
    assert page.get_by_role("status").inner_text() == "The link is copied."
    link = page.evaluate("navigator.clipboard.readText()")
    assert len(link) < 600
    other = visit("book/play.html#" + link.split("#")[1])
    for name in ("Scores · head 0", "Weights · head 1", "Output"):
        assert table(other, f"^{name}") == table(page, f"^{name}")
    other.get_by_role("status").get_by_text("What the link holds is shown.", exact=True).wait_for()


def test_the_address_follows_what_the_reader_does(page):
    assert "#" not in page.url
    page.get_by_label("Temperature", exact=True).fill("3")
    said(page)
    assert "&t=3&" in page.url
    page.reload()
    assert page.get_by_label("Temperature", exact=True).input_value() == "3"


def test_where_copying_is_refused_the_link_stands_in_a_field(visit):
    page = visit()
    page.evaluate(
        "() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }"
    )
    page.get_by_role("button", name="Copy link").click()
    link = page.get_by_label("The link")
    assert link.input_value().startswith(page.url + "#play=1&")
    assert link.evaluate("field => field === document.activeElement && field.selectionEnd > 100")


GOOD = "play=1&i=a_b&j=c_d&d=x&e=y&q=1~2&k=1~2&v=1~2&u=1&s=root&t=1&h=1"
HOSTILE = {
    "no state": "hello",
    "another version": GOOD.replace("play=1", "play=2"),
    "a part is missing": GOOD.replace("&k=1~2", ""),
    "a script as a name": GOOD.replace("i=a_b", "i=%3Cimg%20src=x%20onerror=hacked=1%3E_b"),
    "a name too long": GOOD.replace("i=a_b", f"i={'a' * 13}_b"),
    "an empty name": GOOD.replace("i=a_b", "i=_b"),
    "a control character": GOOD.replace("i=a_b", "i=a%00_b"),
    "text turned around": GOOD.replace("i=a_b", "i=%E2%80%AEa_b"),
    "half an escape": GOOD.replace("i=a_b", "i=%E2%_b"),
    "too many words": GOOD.replace("i=a_b", "i=" + "_".join("abcdefghi")).replace(
        "q=1~2", "q=" + "~".join("123456789")
    ),
    "a row too few": GOOD.replace("q=1~2", "q=1"),
    "ragged rows": GOOD.replace("q=1~2", "q=1_2~2"),
    "no number": GOOD.replace("q=1~2", "q=1~NaN"),
    "infinity": GOOD.replace("q=1~2", "q=1~Infinity"),
    "a power": GOOD.replace("q=1~2", "q=1~1e3"),
    "hexadecimal": GOOD.replace("q=1~2", "q=1~0x10"),
    "a number too large": GOOD.replace("q=1~2", "q=1~1001"),
    "a cold without end": GOOD.replace("t=1", "t=0"),
    "a negative temperature": GOOD.replace("t=1", "t=-1"),
    "no head": GOOD.replace("h=1", "h=0"),
    "a name of the language": GOOD.replace("s=root", "s=__proto__"),
    "its constructor": GOOD.replace("u=1", "u=constructor"),
    "an unknown mistake": GOOD + "&x=nonsense",
    "a mask of another size": GOOD + "&m=101~011",
    "a mask of other signs": GOOD + "&m=12~00",
    "more words than keys": GOOD + "&words=3",
    "a page of it": GOOD + "&p=" + "a" * 5000,
}  # fmt: skip


def test_a_broken_link_says_what_is_wrong_and_shows_the_first_example(page):
    for name, fragment in HOSTILE.items():
        page.evaluate("text => { location.hash = text; }", GOOD)
        assert list(table(page, "^Weights")) == ["a", "b"], name
        page.evaluate("text => { location.hash = text; }", fragment)
        assert refused(page), name
    assert page.evaluate("typeof hacked") == "undefined"


@pytest.mark.parametrize("name", ["no state", "a script as a name", "half an escape"])
def test_a_page_that_is_opened_by_a_broken_link_says_so_too(visit, name):
    page = visit(f"book/play.html#{HOSTILE[name]}")
    assert refused(page)
    assert page.evaluate("typeof hacked") == "undefined"


def refused(page):
    text = said(page)
    assert re.fullmatch(r"This link can't be used: [\w ,.'-]+\. Here is the first example .+", text)
    return table(page, "^Weights")["who?"][:2] == ["0.50", "0.12"]


def test_what_hostile_links_are_made_of_is_itself_a_good_link(visit):
    page = visit(f"book/play.html#{GOOD}")
    assert said(page) == "What the link holds is shown."
    assert list(table(page, "^Weights")) == ["a", "b"]


def test_a_name_is_text_whatever_it_looks_like(visit):
    page = visit(f"book/play.html#{GOOD.replace('i=a_b', 'i=%3Cb%3Ea%3C%2Fb%3E_%26amp%3B')}")
    assert list(table(page, "^Weights")) == ["<b>a</b>", "&amp;"]


def test_an_anchor_of_the_page_is_no_link_with_a_state(visit):
    page = visit("book/play.html#what-you-see")
    assert said(page) == ""


def test_a_link_followed_on_the_open_page_is_read(page):
    page.evaluate(f"location.hash = {json.dumps(GOOD)}")
    assert said(page) == "What the link holds is shown."
    assert list(table(page, "^Weights")) == ["a", "b"]


# Keyboard, screen reader, screens


def test_arrow_keys_change_a_number_by_a_half(page):
    number = field(page, "q of “who?”, link")
    number.focus()
    page.keyboard.press("ArrowUp")
    assert number.input_value() == "0.5"
    page.keyboard.press("Shift+ArrowDown")
    assert number.input_value() == "-4.5"
    assert table(page, "^Scores")["who?"][3] == "−2.25"


def test_what_is_no_number_changes_nothing_and_is_told(page):
    before = table(page, "^Weights")
    number = field(page, "q of “who?”, thing")
    number.fill("")
    assert number.get_attribute("aria-invalid") == "true"
    assert table(page, "^Weights") == before
    assert said(page) == "q of “who?”, thing: a number from -1000 to 1000, please."
    number.fill("2000")
    assert table(page, "^Weights") == before
    page.keyboard.press("Tab")
    assert number.input_value() == "2"
    assert number.get_attribute("aria-invalid") is None


def test_the_mask_is_drawn_by_keyboard(page):
    grid = page.get_by_role("grid", name="Mask")
    assert grid.locator("button[tabindex='0']").count() == 1
    grid.get_by_role("button").first.focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "End", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
    page.keyboard.press("Space")
    button = page.get_by_role("button", name="“who?” may attend to “slept”")
    assert button.get_attribute("aria-pressed") == "false"
    assert button.evaluate("it => it === document.activeElement")
    assert table(page, "^Masked scores")["who?"][4] == "−∞"
    assert grid.locator("button[tabindex='0']").count() == 1
    assert page.get_by_label("drawn", exact=True).is_checked()


def test_tab_reaches_every_control_and_shows_where_it_is(page):
    inside = page.locator(".play-piece")
    wanted = inside.evaluate(
        """piece => [...piece.querySelectorAll('a, button, input, select, [tabindex="0"]')].filter(
            it => it.tabIndex >= 0 && it.getClientRects().length).length"""
    )
    page.get_by_label("Example").focus()
    reached = 0
    script = """() => {
        const it = document.activeElement, style = getComputedStyle(it);
        return it.closest('.play-piece') ? [style.outlineStyle, style.outlineWidth] : null; }"""
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    while (outline := page.evaluate(script)) is not None:
        assert outline == ["solid", "3px"]
        reached += 1
        page.keyboard.press("Tab")
    assert reached == wanted > 45


def test_a_pause_is_followed_by_one_sentence_about_what_changed(page):
    status = page.get_by_role("status")
    assert status.get_attribute("aria-live") == "polite"
    assert status.inner_text() == ""
    page.evaluate(
        """window.told = []; new MutationObserver(() =>
            told.push(document.querySelector('[role=status]').textContent)
        ).observe(document.querySelector('[role=status]'), { childList: true })"""
    )
    number = field(page, "q of “who?”, thing")
    number.focus()
    for _ in range(6):
        page.keyboard.press("ArrowDown")
    assert said(page) == "“who?” now gives most to “cat”: 0.34."
    assert page.evaluate("told.length") == 1


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        ("mask", "“who?” may not attend to “cat” now. “who?” now gives most to “mouse”: 0.50."),
        ("cold", "2 rows of weights changed. “who?” now gives most to “cat”: 1.00."),
        ("value", "Weights stay; the output changed for “who?”, “what?”."),
        ("same", "No weight and no output changed."),
        ("example", "The example “Every word asks” is shown."),
        ("nothing", "2 rows of weights changed. “who?” has nothing to look at: " + ZEROS),
    ],
)
def test_the_sentence_says_what_changed(page, act, sentence):
    if act == "mask":
        page.get_by_role("button", name="“who?” may attend to “cat”").click()
    if act == "cold":
        page.get_by_label("Temperature", exact=True).fill("0.05")
    if act == "value":
        field(page, "v of “cat”, lively").fill("9")
    if act == "same":
        field(page, "q of “who?”, thing").fill("2.000")
    if act == "example":
        page.get_by_label("Example").select_option("sentence")
    if act == "nothing":
        page.get_by_label("padding", exact=True).check()
        page.get_by_label("Padding: how many keys are words").fill("0")
    assert said(page) == sentence


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("example", ["formula", "split-by-view", "empty"])
def test_a_narrow_page_does_not_scroll_sideways(visit, theme, example):
    page = visit(color_scheme=theme, viewport={"width": 375, "height": 740})
    page.get_by_label("Example").select_option(example)
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    # What scrolls, and nothing else, is a stop for the keyboard, once the page has seen its sizes.
    page.wait_for_function(
        """() => [...document.querySelectorAll(".play-scroll")].every(
            it => (it.scrollWidth > it.clientWidth + 1) === (it.tabIndex === 0))"""
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_its_ground_in_both_themes(visit, theme):
    page = visit(color_scheme=theme)
    script = """it => { const s = getComputedStyle(it); return [s.color, s.backgroundColor]; }"""
    for selector in (".play-table input", ".play-said", "select", ".play-stage-scores tbody td"):
        ink, ground = page.locator(selector).first.evaluate(script)
        assert contrast(ink, ground) >= 7, selector


def contrast(ink, ground):
    """WCAG's contrast of two colours as the browser tells them."""
    first, second = sorted(map(luminance, (ink, ground)))
    return (second + 0.05) / (first + 0.05)


def luminance(colour):
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_nothing_moves_for_readers_who_ask_for_that(visit):
    script = "getComputedStyle(document.querySelector('.play-stage td')).transitionDuration"
    assert visit(reduced_motion="reduce").evaluate(script) == "0s"
    assert visit().evaluate(script) == "0.15s"


# Where it stands


def test_without_a_script_the_tables_and_the_reason_stay(bare, address):
    bare.goto(f"{address}/book/play.html")
    assert "needs JavaScript" in bare.locator(".attention-play").inner_text()
    assert bare.locator(".attention-play table").count() == 3


def test_the_page_works_when_it_is_opened_as_a_file(browser, site):
    with browser.new_context() as context:
        page = context.new_page()
        page.goto((site / "book/play.html").as_uri() + "#" + GOOD)
        assert list(table(page, "^Weights")) == ["a", "b"]


def test_a_page_without_a_piece_loads_none_of_its_scripts(site):
    assert "play/" not in (site / "book" / "03b_how_heads_get_mixed_up.html").read_text("utf-8")
    text = (site / "book/play.html").read_text("utf-8")
    assert tuple(re.findall(r"_static/play/(\w+)\.js", text)) == sphinx_pages.PLAY
    files = {path.stem for path in (conftest.ROOT / "book/_static/play").glob("*.js")}
    assert files == set(sphinx_pages.PLAY)


@pytest.mark.parametrize("name", conftest.PIECES)
def test_a_chapter_has_a_piece_that_leads_to_the_page(visit, name):
    page = visit(f"book/{name}.html")
    piece = page.locator(".play-piece")
    assert piece.count() == 1
    before = page.locator(".play-stage-weights").first.inner_text()
    temperature, example = page.get_by_label("Temperature", exact=True), piece.locator("select")
    if name.startswith("01"):
        temperature.fill("3")
    elif name.startswith("03"):
        example.first.select_option("1")
    else:
        piece.get_by_label("causal", exact=True).uncheck()
    said(page)
    assert "#" not in page.url
    after = page.locator(".play-stage-weights").first.inner_text()
    assert after != before
    page.locator(".attention-play a[href*='play.html']").last.click()
    page.wait_for_url("**/play.html#play=1&*")
    assert page.locator(".play-stage-weights").first.inner_text() == after
