"""Numbers and links that pages get when they are built, on a small book of its own."""

import base64
import json
import os
import re
import subprocess
import sys

import pytest
from bs4 import BeautifulSoup

from tools import notebooks, rules, sphinx_links

ROOT = notebooks.ROOT
CONF = """
extensions = ["myst_parser", "tools.sphinx_links"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
numfig = True
numfig_format = {"figure": "Figure %s"}
html_secnumber_suffix = " "
"""
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)
PAGES = {
    "index": """
# The book

```{toctree}
book/01_first
book/02_second
book/glossary
book/api
```
""",
    "book/01_first": """
# 1 · First

The opening speaks of a score and of chapter 2, and then of chapter 2 again.

## Begin with a query

A dictionary has keys. What attention asks with is a **query**, and it is compared with **keys**.
Self-attention is another matter, and a `query` is code. Queries meet `attention(q, k, v)`, and
`attention` again.

| a table | of scores |
|---|---|
| `mini_attention.masks` | the score |

<details><summary>Answer</summary>

One score, and exercise 1.

</details>

Then a score. A block of it, and another score: figure 1.2, figures 1.1 and 1.2.

```{figure} pixel.png
:name: fig-one
One.
```

```{figure} pixel.png
:name: fig-two
Two.
```

```python
from mini_attention import attention, masks
from mini_attention import (
    attention_weights,
)
```

$$a = b \\tag{1.1}$$

$$\\begin{aligned}
a &= b \\\\
  &= c
\\end{aligned} \\tag{1.2}$$

## Go on

Equation 1.2 and section 1.1 stand above, section 2.1 elsewhere.

```{eval-rst}
As cells print it: `to there <02_second.ipynb#one>`__, `elsewhere <https://example.org/a.ipynb>`__.
```

## Summary

## Exercises

### Exercise 1 · Predict (5 min, easy)

### Exercise 2 · Break it (5 min, easy)
""",
    "book/02_second": """
# 2 · Second

In the answer of chapter 1, 12, 3 and 25 sixteenths; chapter 1 again.

## One

Here [figure 1.2](01_first.md#begin-with-a-query) and exercises 1.1, 1.2 and 2.1, or exercise 1.
A causal mask is a mask. A **block** of queries. Nobody calls `attention` here.

## Summary

## Exercises

### Exercise 1 · Open (5 min, hard)
""",
    "book/glossary": """
# Glossary

```{glossary}
block · 分块
  A part of the queries.

  In chapter 2: [](02_second.md#one).

causal mask · 因果掩码
  It hides the future.

  In chapter 2: [](02_second.md#one).

key · 键
  What is compared.

  Written `k`, `√d`. In chapter 1: [](01_first.md#begin-with-a-query).

mask · 掩码
  Yes or no, made by `causal_mask`.

  `causal_mask(n)` makes it. In chapter 2: [](02_second.md#one).

query · 查询
  What is asked.
  In two lines.

  In chapter 1: [](01_first.md#begin-with-a-query).

score · 分数
  A number.

  In chapter 1: [](01_first.md#begin-with-a-query).
```
""",
    "book/api": """
# API

```{eval-rst}
.. py:function:: mini_attention.attention(query, key, value)

   The formula.

   More of it, figure 9 of the paper.

.. py:function:: mini_attention.attention_weights(query, key)

   Half of it.
```
""",
}


def build(folder, pages):
    """Build a book of these pages; returns what Sphinx warns of."""
    for name, text in pages.items():
        path = folder / f"{name}.md"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text, encoding="utf-8")
    (folder / "conf.py").write_text(CONF, encoding="utf-8")
    (folder / "book" / "pixel.png").write_bytes(base64.b64decode(PIXEL))
    command = [sys.executable, "-m", "sphinx", "-q", "-n", str(folder), str(folder / "html")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stderr


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small_book")
    assert build(folder, PAGES) == ""
    return folder / "html"


@pytest.fixture(scope="module")
def page(html):
    return lambda name: BeautifulSoup((html / f"{name}.html").read_text("utf-8"), "html.parser")


@pytest.fixture(scope="module")
def first(page):
    return page("book/01_first")


@pytest.fixture(scope="module")
def second(page):
    return page("book/02_second")


def links(soup, kind):
    return [(link.text, link["href"]) for link in soup.select(f"a.{kind}")]


# Numbers


def test_a_figure_has_the_number_of_its_chapter(first):
    assert [n.text for n in first.select(".caption-number")] == ["Figure 1.1 ", "Figure 1.2 "]


def test_sections_are_numbered_up_to_the_summary(first):
    titles = [title.text.rstrip("¶") for title in first.select("h2")]
    assert titles == ["1.1 Begin with a query", "1.2 Go on", "Summary", "Exercises"]


def test_an_exercise_keeps_its_old_address_and_has_one_that_stays(first):
    assert first.select_one("#exercise-2 > h3").text.startswith("Exercise 1.2 · Break it")
    assert first.select_one("#exercise-2 #exercise-2-break-it-5-min-easy")


def test_numbered_equations_show_their_tag_and_can_be_linked_to(first):
    assert first.select_one("div#equation-1-1.math").text.strip() == "\\[a = b \\tag{1.1}\\]"
    assert "split" not in first.select_one("div#equation-1-2.math").text


def test_what_a_sentence_refers_to_by_number_is_linked(first):
    assert links(first, "number") == [
        ("chapter 2", "02_second.html"),
        ("exercise 1", "#exercise-1"),
        ("figure 1.2", "#fig-two"),
        ("figures 1.1", "#fig-one"),
        ("1.2", "#fig-two"),
        ("Equation 1.2", "#equation-1-2"),
        ("section 1.1", "#begin-with-a-query"),
        ("section 2.1", "02_second.html#one"),
    ]


def test_numbers_of_other_pages_are_linked_and_a_list_is_no_chapter(second):
    assert links(second, "number") == [
        ("chapter 1", "01_first.html"),
        ("exercises 1.1", "01_first.html#exercise-1"),
        ("1.2", "01_first.html#exercise-2"),
        ("2.1", "#exercise-1"),
        ("exercise 1", "#exercise-1"),
    ]


def test_a_link_that_names_a_figure_leads_to_the_figure_itself(second):
    (link,) = (link for link in second.select("a") if link.text == "figure 1.2")
    assert link["href"] == "01_first.html#fig-two"


# Terms


def test_the_first_use_of_a_term_is_linked_and_a_bold_definition_is_the_first(first):
    assert links(first, "term") == [
        ("query", "glossary.html#term-query"),
        ("keys", "glossary.html#term-key"),
        ("score", "glossary.html#term-score"),
    ]
    assert [link.parent.name for link in first.select("a.term")] == ["strong", "strong", "p"]


def test_a_table_a_folded_answer_and_the_opening_keep_their_words_plain(first):
    (score,) = (link for link in first.select("a.term") if link.text == "score")
    assert score.parent.text.startswith("Then a score.")


def test_a_term_within_a_longer_one_is_another_term(second):
    assert links(second, "term") == [
        ("causal mask", "glossary.html#term-causal-mask"),
        ("mask", "glossary.html#term-mask"),
        ("block", "glossary.html#term-block"),
        ("queries", "glossary.html#term-query"),
    ]


def test_a_term_says_what_it_means(first):
    assert first.select_one("a.term")["title"] == "query: What is asked. In two lines."


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("attention", "self-attention and attention-like, not"),
        ("head", "heads"),
        ("query", "queryable"),
    ],
)
def test_a_term_is_a_whole_word(form, text):
    assert sphinx_links.term_pattern([form]).search(text) is None


# Names of the package


def test_the_first_use_of_a_name_and_its_import_lead_to_the_reference(first):
    assert links(first, "name") == [
        ("attention(q, k, v)", "api.html#mini_attention.attention"),
        ("attention", "api.html#mini_attention.attention"),
        ("attention_weights", "api.html#mini_attention.attention_weights"),
    ]
    assert first.select_one("a.name")["title"] == "mini_attention.attention: The formula."


def test_an_entry_of_the_reference_leads_back_to_where_it_is_used(page):
    lines = page("book/api").select("p.uses")
    assert [line.text for line in lines] == [
        "In the book: chapter 1, chapter 2.",
        "In the book: chapter 1.",
    ]
    assert [link["href"] for line in lines for link in line.select("a")] == [
        "01_first.html#use-mini_attention.attention",
        "02_second.html#use-mini_attention.attention",
        "01_first.html",
    ]
    assert page("book/02_second").select_one("a.name#use-mini_attention\\.attention")


# Search


@pytest.fixture(scope="module")
def findable(html):
    text = (html / "searchindex.js").read_text("utf-8")
    return json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))["indexentries"]


@pytest.mark.parametrize("word", ["causal mask", "因果掩码", "k", "√d", "exercise 1.2"])
def test_names_symbols_and_exercises_are_words_that_search_knows(findable, word):
    assert len(findable[word]) == 1


def test_search_finds_what_the_package_offers_in_the_reference_alone(findable):
    assert "causal_mask(n)" not in findable


# Outputs


def test_a_link_to_a_notebook_as_a_cell_prints_it_leads_to_its_page(first):
    shown = {link.text: link["href"] for link in first.select("a.reference")}
    assert shown["to there"] == "02_second.html#one"
    assert shown["elsewhere"] == "https://example.org/a.ipynb"


# What is wrong is said


WRONG = {
    "a figure": ("See figure 1.3.", "there is no figure 1.3"),
    "a chapter": ("See chapter 7.", "there is no chapter 7"),
    "an exercise of the chapter": ("See exercise 3.", "there is no exercise 1.3"),
    "a link": ("See [section 4.1](02_second.md).", "there is no section 4.1"),
    "a notebook": (
        "```{eval-rst}\n`See <03_third.ipynb>`__\n```",
        "there is no page for 03_third.ipynb",
    ),
    "an equation out of order": ("$$a \\tag{1.4}$$", "equation 1.4 should be number 1.3"),
}


@pytest.fixture(scope="module")
def warnings(tmp_path_factory):
    faults = "\n\n".join(text for text, _ in WRONG.values())
    wrong = {
        **PAGES,
        "book/01_first": PAGES["book/01_first"].replace("## Summary", f"{faults}\n\n## Summary"),
        "book/glossary": PAGES["book/glossary"].replace("mask · 掩码", "mask"),
    }
    return build(tmp_path_factory.mktemp("wrong_book"), wrong)


@pytest.mark.parametrize("warning", [warning for _, warning in WRONG.values()], ids=WRONG)
def test_a_number_that_is_not_there_is_a_warning(warnings, warning):
    assert len(re.findall(rf"01_first\.md:\d+: WARNING: {re.escape(warning)}\n", warnings)) == 1


def test_an_entry_without_its_chinese_name_is_a_warning(warnings):
    assert warnings.count("an entry of the glossary needs its English and its Chinese name") == 1


# The book itself


ENTRY = re.compile(r"^(\S.*?) · (\S+)\n  (.+)\n\n  (.*)\[\]\((\w+\.ipynb)#(\S+)\)\.$", re.MULTILINE)
GLOSSARY = (ROOT / "book" / "glossary.md").read_text("utf-8")
ENTRIES = {name.strip("`"): rest for name, *rest in ENTRY.findall(GLOSSARY)}


def section(path, slug):
    """The title of a page, and one of its sections with its heading."""
    text = "\n\n".join(cell.source for _, cell in rules.Page(path).markdown)
    title, *sections = re.split(r"^## +", text, flags=re.MULTILINE)
    (found,) = (each for each in sections if rules.slug(each.partition("\n")[0]) == slug)
    return f"{title.splitlines()[0]}\n{found}"


def test_the_glossary_is_in_order_and_read_whole():
    assert len(ENTRIES) == GLOSSARY.count("[](") > 70
    assert list(ENTRIES) == sorted(ENTRIES, key=str.lower)


def test_no_two_terms_share_their_chinese_name():
    names = [chinese for chinese, *_ in ENTRIES.values()]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("name", ENTRIES)
def test_a_meaning_is_one_or_two_sentences_without_formulas(name):
    """It is shown in a hover, too, where nothing is set as a formula."""
    _, meaning, *_ = ENTRIES[name]
    assert "$" not in meaning
    assert len(re.findall(r"[.”](?: |$)", meaning)) in (1, 2, 3)
    assert meaning.endswith((".", "”"))


@pytest.mark.parametrize("name", ENTRIES)
def test_the_section_that_introduces_a_term_speaks_of_it(name):
    *_, path, slug = ENTRIES[name]
    forms = sphinx_links.forms_of(name.partition(" (")[0])
    assert sphinx_links.term_pattern(forms).search(section(ROOT / "book" / path, slug))


def test_special_forms_and_everyday_words_are_those_of_terms():
    assert set(ENTRIES) >= set(sphinx_links.FORMS) | sphinx_links.EVERYDAY


def numbered(path):
    """What a chapter numbers, counted in its notebook."""
    page = rules.Page(path)
    label = re.match(r"# (\w+) ·", page.cells[0].source)[1]
    text = "\n\n".join(cell.source for _, cell in page.markdown)
    yield "chapter", label
    for kind, count in {
        "section": len(re.findall(r"^## (?!Summary|Exercises)", text, re.MULTILINE)),
        "figure": sum("figure" in cell.metadata.get("mystnb", {}) for _, cell in page.code),
        "exercise": len(re.findall(r"^### Exercise \d", text, re.MULTILINE)),
        "equation": len(re.findall(r"\\tag\{", text)),
    }.items():
        yield from ((kind, f"{label}.{number}") for number in range(1, count + 1))


@pytest.mark.parametrize(
    "path", sorted((ROOT / "book" / "assignments").glob("*.ipynb")), ids=lambda path: path.stem
)
def test_an_assignment_refers_to_what_is_in_the_book(path):
    """Assignments are handed out, and no pages: the build does not see them."""
    there = {key for chapter in (ROOT / "book").glob("0*.ipynb") for key in numbered(chapter)}
    for _, cell in rules.Page(path).markdown:
        for *_, key in sphinx_links.references(rules.prose(cell.source), None):
            assert key in there
