"""What a reader finds: by search, by a dotted line, by the button that copies."""

from urllib.parse import quote

import pytest

# What is typed, and where one of the first two results has to lead.
FIRST = {
    "d_head": "glossary.html#term-d_head",
    "d_model": "glossary.html#term-d_model",
    "causal mask": "glossary.html#term-causal-mask",
    "Causal Mask": "glossary.html#term-causal-mask",
    "einsum": "einops_in_ten_minutes.html",
    "rearrange": "einops_in_ten_minutes.html",
    "√d": "glossary.html#term-scale",
    "sqrt": "glossary.html#term-scale",
    "softmax": "glossary.html#term-softmax",
    "q": "glossary.html#term-query",
    "W_o": "glossary.html#term-output-projection",
    "i × j": "glossary.html#term-weight",
    "... i d": "glossary.html#term-query",
    "b h i d": "glossary.html#term-head",
    "-inf": "glossary.html#term-bias",
    "∂L/∂x": "glossary.html#term-gradient",
    "掩码": "glossary.html#term-mask",
    "因果掩码": "glossary.html#term-causal-mask",
    "注意力": "glossary.html#term-attention",
    "MultiHeadAttention": "api.html#mini_attention.MultiHeadAttention",
    "mini_attention.causal_mask": "api.html#mini_attention.causal_mask",
    "peak_bytes": "api.html#mini_attention.memory.peak_bytes",
    "attention": "api.html#mini_attention.attention",
    "temperature": "01_attention_formula.html",
    "FlashAttention": "06_attention_without_the_matrix.html",
    "exercise 3.2": "03_multi_head_attention.html#exercise-2",
    "Exercise 5b.1": "05b_gradient_of_attention.html#exercise-1",
}


SEARCHED = "document.querySelector('.search-summary')?.textContent"
FOUND = "links => links.map(link => [link.textContent, link.getAttribute('href')])"
RESULTS = "ul.search li > a"


def search(visit, query):
    """The results in order: what each says, and where it leads."""
    page = visit(f"search.html?q={quote(query)}")
    page.wait_for_function(SEARCHED)
    page.wait_for_load_state("networkidle")  # each result shows a part of its page
    return page.eval_on_selector_all(RESULTS, FOUND)


def test_search_leads_to_the_right_place_at_once(visit):
    page = visit("search.html")
    page.evaluate("DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false")  # no parts of pages
    begin = """query => { document.getElementById("search-results").replaceChildren();
        Search.performSearch(query); }"""
    lost = {}
    for query, target in FIRST.items():
        page.evaluate(begin, query)
        page.wait_for_function(SEARCHED)
        leads = [address for _, address in page.eval_on_selector_all(RESULTS, FOUND)]
        if f"book/{target}" not in leads[:2]:
            lost[query] = leads[:2]
    assert lost == {}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("causal mask", "Glossary > causal mask"),
        ("√d", "Glossary > scale"),
        (
            "exercise 3.2",
            "3 · Ask several questions at once: multi-head attention > Exercise 3.2",
        ),
    ],
)
def test_a_result_says_where_on_its_page_it_leads(visit, query, expected):
    assert search(visit, query)[0][0] == expected


def test_what_is_nowhere_is_not_found(visit):
    assert search(visit, "photosynthesis") == []


def copied(page, code):
    code.scroll_into_view_if_needed()
    code.hover()
    code.locator("button.copybtn").click()
    page.wait_for_selector("button.copybtn.success")
    return page.evaluate("navigator.clipboard.readText()")


CLIPBOARD = {"permissions": ["clipboard-read", "clipboard-write"]}


def test_a_cell_is_copied_as_it_is_written(visit):
    page = visit("book/04_masking.html", **CLIPBOARD)
    first = copied(page, page.locator("div.cell_input div.highlight").first)
    assert first.startswith("import math\n")
    assert "from mini_attention import" in first


def test_an_example_is_copied_without_its_prompt_and_its_result(visit):
    page = visit("book/api.html", **CLIPBOARD)
    example = page.locator("div.highlight", has_text=">>> causal_mask(2, 4).int()")
    assert copied(page, example) == "causal_mask(2, 4).int()"


def test_what_a_cell_printed_has_no_button(visit):
    page = visit("book/04_masking.html")
    page.wait_for_selector("div.cell_input button.copybtn")
    assert page.locator("div.cell_output div.highlight").count() > 5
    assert page.locator("div.cell_output button.copybtn").count() == 0


def test_a_term_is_reached_by_keyboard_and_says_what_it_means(visit):
    page = visit("book/01_attention_formula.html")
    page.wait_for_selector("div.cell_input button.copybtn")  # the page is as it stays
    term = page.locator("a.term", has_text="query").first
    assert term.get_attribute("title").startswith("query: What a position looks for.")
    term.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/book/glossary.html#term-query")
    assert page.locator("#term-query").is_visible()
