"""The pages of the book, held to the rules of tools/rules.py and to each other."""

import math
import re
from pathlib import Path

import pytest
import torch
import yaml
from matplotlib import colormaps
from pybtex.database import parse_file

import mini_attention
from mini_attention import plots
from tools import notebooks, rules

ROOT = notebooks.ROOT
BOOK = ROOT / "book"
NOTEBOOKS = notebooks.all_notebooks()
SOURCES = [path for path in NOTEBOOKS if path.parent.name == "assignments"]
PAGES = sorted([*BOOK.glob("*.md"), *(BOOK / "assignments").glob("*.md")])


def in_contents():
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    chapters = [chapter for part in contents["parts"] for chapter in part["chapters"]]
    return [contents["root"], *(chapter["file"] for chapter in chapters)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_keeps_the_rules(path):
    assert rules.problems(path) == []


def test_the_contents_list_every_page_once():
    shown = {*NOTEBOOKS, *PAGES} - {*SOURCES}  # those hold the solutions
    pages = [str(path.relative_to(ROOT).with_suffix("")) for path in shown]
    assert sorted(in_contents()) == sorted(pages)


def test_the_chapters_stand_in_reading_order():
    numbered = [name for name in in_contents() if re.search(r"/\d\d", name)]
    assert numbered == sorted(numbered)
    assert len(numbered) >= 8


def test_the_opening_page_tells_the_minutes_that_each_chapter_tells():
    rows = re.findall(
        r"^\| \[.*?\]\((\w+\.ipynb)\) .* (\d+) \|$", (BOOK / "intro.md").read_text("utf-8"), re.M
    )
    assert [name for name, _ in rows] == [p.name for p in NOTEBOOKS if p.name[:2].isdigit()]
    for name, minutes in rows:
        _, first = next(iter(rules.Page(BOOK / name).markdown))
        assert f"*About {minutes} minutes" in first.source, name


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_page_of_assignments_tells_what_each_notebook_tells_and_offers_it(path):
    first = rules.Page(path).cells[0].source
    title = re.match(r"# Assignment (.+)\n", first)[1]
    told = rules.TOLD.search(first)[0].rpartition(" · ")[0]
    text = (BOOK / "assignments" / "index.md").read_text("utf-8")
    section = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## )", text, re.M | re.S)[1]
    assert section.strip().startswith(told)
    assert f"`{path.name} <student/{path.name}>`" in section


def test_figures_have_names_that_no_other_page_has():
    names = [
        cell.metadata["mystnb"]["figure"]["name"]
        for path in NOTEBOOKS
        for _, cell in rules.Page(path).code
        if "mystnb" in cell.metadata
    ]
    assert len(names) == len(set(names)) > 0


@pytest.mark.parametrize("path", [*PAGES, ROOT / "README.md"], ids=lambda path: path.name)
def test_links_of_a_page_lead_somewhere(path):
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        if re.match(r"https?:|mailto:", target):
            continue
        other = path.parent / name if name else path
        assert other.exists(), target
        assert not anchor or anchor in rules.anchors(other), target


def test_the_bibliography_is_sorted_and_complete():
    keys = re.findall(r"^@\w+\{(.+),$", (BOOK / "references.bib").read_text("utf-8"), re.M)
    assert keys == sorted(keys)
    entries = parse_file(str(BOOK / "references.bib")).entries
    assert list(entries) == keys
    for key, entry in entries.items():
        assert entry.persons.get("author"), key
        assert {"title", "year"} <= set(entry.fields), key


def test_every_entry_of_the_bibliography_is_cited():
    texts = [cell.source for path in NOTEBOOKS for _, cell in rules.Page(path).markdown]
    texts += [path.read_text(encoding="utf-8") for path in PAGES]
    labels = re.findall(r"\[([^\]]+)\]\(bibliography\.md\)", "\n".join(texts))
    for key, entry in parse_file(str(BOOK / "references.bib")).entries.items():
        surname = " ".join(entry.persons["author"][0].last_names).strip("{}")
        year = entry.fields["year"]
        assert any(label.startswith(surname) and year in label for label in labels), key


def test_the_api_page_shows_every_public_name():
    text = (BOOK / "api.md").read_text("utf-8")
    shown = re.findall(r"auto(?:function|class):: (\w+)$", text, re.M)
    assert sorted(shown) == sorted(mini_attention.__all__)


def test_no_file_of_the_book_is_left_over():
    known = {".ipynb", ".md", ".bib", ".toml"}
    strays = [path.name for path in BOOK.iterdir() if path.is_file() and path.suffix not in known]
    assert strays == []


def test_mathjax_lies_beside_the_pages_with_its_licence():
    folder = BOOK / "_static" / "mathjax"
    assert b"MathJax" in (folder / "tex-svg.js").read_bytes()
    assert "Apache License" in (folder / "LICENSE").read_text(encoding="utf-8")
    assert not (Path(ROOT) / "_static").exists(), "Jupyter Book would load all scripts in it"


def test_the_tables_that_stay_without_a_script_are_what_the_package_computes():
    text = (BOOK / "play.md").read_text("utf-8")
    words = [[1, 0, 0, 2], [0, 1, 0, 2], [1, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 1]]
    key = torch.tensor(words, dtype=torch.float64)
    query = torch.tensor([[2, -2, 0, 2], [-2, 2, 0, 2]], dtype=torch.float64) * math.log(2)
    weights = mini_attention.attention_weights(query, key)
    want = {
        "Scores, in points": mini_attention.attention_scores(query, key) / math.log(2),
        "Weights": weights,
        "Output": mini_attention.attention(query, key, key[:, [0, 1, 3]]),
    }
    tables = re.findall(r"<caption>(.+?)</caption>(.+?)</table>", text, re.S)
    assert [name for name, _ in tables] == list(want)
    for name, table in tables:
        numbers = re.findall(r"<td[^>]*>([\d.]+)</td>", table)
        assert numbers == [f"{round(x, 6):.2f}" for x in want[name].flatten().tolist()]
    colours = re.findall(r"background-color: rgb\((\d+) (\d+) (\d+)\); color: (\w+)", text)
    for (*rgb, ink), weight in zip(colours, weights.flatten().tolist(), strict=True):
        shade = colormaps[plots.COLOUR_MAP](weight)[:3]
        assert [int(part) for part in rgb] == [round(255 * part) for part in shade]
        assert ink == plots._readable_on(shade)
