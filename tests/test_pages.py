"""What tools/sphinx_pages does to the pages of the book, on the pages themselves.

The book is built once for all of these tests, from the stored outputs of its notebooks and as if
it were published at URL.
"""

import base64
import gzip
import math
import os
import re
import subprocess
import sys
from io import BytesIO
from types import SimpleNamespace
from urllib.parse import urljoin, urlsplit
from xml.etree import ElementTree as ET

import nbformat
import pytest
import torch
import yaml
from bs4 import BeautifulSoup
from docutils import nodes
from docutils.utils import new_document
from filelock import FileLock
from fontTools.ttLib import TTFont
from PIL import Image
from sphinx.errors import ConfigError

from mini_attention import attention_weights
from tools import notebooks, permalinks, steps
from tools.sphinx_pages import docstrings, heads, icons, lines, moved

ROOT = notebooks.ROOT
URL = steps.ADDRESSES["BOOK_URL"]
BUDGET = 300_000  # bytes of a page besides MathJax and figures, as they travel


def in_contents():
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    chapters = [chapter["file"] for part in contents["parts"] for chapter in part["chapters"]]
    return [contents["root"], *chapters]


PAGES = [f"{name}.html" for name in in_contents()]
MADE = ["404.html", "genindex.html", "search.html"]  # by Sphinx, without a source


@pytest.fixture(scope="session")
def built(tmp_path_factory, worker_id):
    """The folder of pages: those that `make test` has just made, or else new ones, which the first
    of several workers that needs them makes for all.
    """
    if (made := ROOT / os.environ.get("BUILT_PAGES", "none") / "index.html").exists():
        return made.parent
    shared = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        shared = shared.parent
    html = shared / "book"
    with FileLock(shared / "book.lock", timeout=1200):
        if not html.exists():
            build(html)
    return html


def outside_of_workflows():
    """An environment in which neither the pages nor the repository have an address."""
    known = {"BOOK_URL", "GITHUB_REPOSITORY"}
    return {name: os.environ[name] for name in os.environ.keys() - known} | {"NO_COLOR": "1"}


def build(folder):
    done = subprocess.run(
        [sys.executable, "-m", "tools.stored", folder],
        cwd=ROOT,
        env={**outside_of_workflows(), **steps.ADDRESSES},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def soup(built):
    """soup(name) is a page of the book, read once."""
    return lambda name: permalinks.parsed(built / name)


def own_path(name, address):
    """The file that a page means by an address, relative to the folder of pages."""
    whole = urljoin(urljoin(URL, name), address)
    return urlsplit(whole).path.removeprefix(urlsplit(URL).path) if whole.startswith(URL) else None


def loaded(page, name):
    """What a browser loads with a page, its figures left out."""
    found = [tag.get("src") for tag in page.find_all("script")]
    found += [
        tag["href"] for tag in page.find_all("link") if {"stylesheet", "preload"} & set(tag["rel"])
    ]
    return {own_path(name, address) for address in found if address}


# Size


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES + MADE)
def test_a_page_travels_light(built, soup, name):
    files = {name, *(file for file in loaded(soup(name), name) if "mathjax" not in file)}
    for style in [file for file in files if file.endswith(".css")]:
        text = (built / style).read_text("utf-8")
        for address in re.findall(r"url\([\"']?(?!data:)([^)\"']+)", text):
            files.add(own_path(style, address))
    sizes = {file: len(gzip.compress((built / file).read_bytes(), 6)) for file in files}
    assert {name, "_static/styles/bootstrap.css", "_static/icons.css"} <= set(sizes)
    assert sum(sizes.values()) <= BUDGET, sizes


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES + MADE)
def test_a_page_loads_mathjax_where_it_has_maths_and_nowhere_else(soup, name):
    mathjax = any("mathjax" in file for file in loaded(soup(name), name))
    assert mathjax == bool(soup(name).select(".math"))


# Icons


def font(weight):
    found = re.search(rf"font-weight: {weight};\s+src: url\(data:font/woff;base64,([^)]+)", SHEET)
    return TTFont(BytesIO(base64.b64decode(found[1])))


SHEET = icons.stylesheet()
NOT_ICONS = {"fa-solid", "fa-brands", "fa-lg"}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES + MADE)
def test_every_icon_of_a_page_is_in_the_style_sheet(soup, name):
    classes = {c for tag in soup(name).select("i, span") for c in tag.get("class", [])}
    used = {c for c in classes if c.startswith("fa-")} - NOT_ICONS
    assert "fa-magnifying-glass" in used
    assert {c for c in used if f".{c}::before" not in SHEET} == set()


def test_each_icon_is_drawn_in_the_font_of_its_kind():
    known = icons.points()
    for names, weight in ((icons.SOLID, 900), (icons.BRANDS, 400)):
        characters = font(weight).getBestCmap()
        assert {name for name in names if known[name] not in characters} == set()


def test_the_icons_that_the_theme_writes_itself_are_in_a_font():
    drawn = {*font(900).getBestCmap(), *font(400).getBestCmap()}
    assert {0xF019, 0xF0F3} <= set(icons.in_styles()) <= drawn  # a download, a bell


def test_the_font_has_a_name_of_its_own_and_is_the_same_each_time():
    assert {str(r) for r in font(900)["name"].names if r.nameID in (1, 4, 6)} == {"book-icons"}
    assert icons.stylesheet() == SHEET


@pytest.mark.slow
def test_of_font_awesome_the_licence_is_published_and_nothing_else(built):
    folder = built / "_static" / "vendor" / "fontawesome"
    (file,) = (path for path in folder.rglob("*") if path.is_file())
    assert "SIL OFL 1.1" in file.read_text("utf-8")


# Figures


@pytest.mark.slow
def test_every_figure_tells_its_size(built, soup):
    seen = 0
    for name in PAGES:
        for tag in soup(name).find_all("img"):
            with Image.open(built / own_path(name, tag["src"])) as picture:
                width = int(tag["width"])
                height = round(picture.height * width / picture.width)
                assert (width <= picture.width, int(tag["height"])) == (True, height), tag
            seen += 1
    assert seen > 20


# Heads


def head(page, selector, attribute="content"):
    (tag,) = page.head.select(selector)
    return tag[attribute]


@pytest.mark.slow
def test_every_page_describes_itself_in_words_of_its_own(soup):
    names = [*PAGES, *MADE, "_modules/index.html", "_modules/mini_attention/masks.html"]
    said = {name: head(soup(name), 'meta[name="description"]') for name in names}
    assert len(set(said.values())) == len(names)
    for name, text in said.items():
        assert 40 <= len(text) <= heads.LONGEST, (name, text)
        assert re.fullmatch(r"[A-Z][^\\\n{}<>]+[.!?…]", text), (name, text)


def document(*paragraphs):
    section = nodes.section("", nodes.title("", "Title"))
    section += [nodes.paragraph("", text) for text in paragraphs]
    tree = new_document("page")
    tree += section
    return tree


LONG = "One sentence of some length says what this whole page is about"


@pytest.mark.parametrize(
    ("paragraphs", "expected"),
    [
        ([f"{LONG}.", "More."], f"{LONG}."),
        (["Short.", f"{LONG}."], f"Short. {LONG}."),
        ([f"{LONG}. {LONG}. {LONG}. {LONG}."], f"{LONG}. {LONG}. {LONG}."),
        ([f"Over\ntwo lines: {LONG}."], f"Over two lines: {LONG}."),
        ([LONG, "unused"], LONG),
        (["word, " * 50], "word, " * 32 + "word…"),
    ],
    ids=["first", "short first", "whole sentences", "line break", "no full stop", "no end"],
)
def test_a_description_is_the_beginning_of_the_text(paragraphs, expected):
    assert heads.description(document(*paragraphs)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_link_to_a_page_shows_a_card(built, soup, name):
    page = soup(name)
    assert head(page, 'link[rel="canonical"]', "href") == URL + name
    assert head(page, 'meta[property="og:url"]') == URL + name
    assert head(page, 'meta[property="og:title"]') == page.h1.get_text().rstrip("#")
    described = head(page, 'meta[name="description"]')
    assert head(page, 'meta[property="og:description"]') == described
    assert head(page, 'meta[name="twitter:card"]') == "summary_large_image"
    assert_card(built, page)


def assert_card(built, page):
    address = head(page, 'meta[property="og:image"]')
    assert address.startswith(URL)
    with Image.open(built / own_path("", address)) as card:
        sizes = [head(page, f'meta[property="og:image:{side}"]') for side in ("width", "height")]
        assert sizes == [str(size) for size in card.size] == ["1200", "630"]
    assert head(page, 'meta[property="og:image:alt"]') == heads.CARD_SHOWS


def test_the_card_shows_the_weights_of_chapter_1():
    text = (ROOT / "book" / "_static" / "card.svg").read_text("utf-8")
    words = [[1, 0, 0, 2], [0, 1, 0, 2], [1, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 1]]
    key = torch.tensor(words, dtype=torch.float64)
    query = torch.tensor([[2, -2, 0, 2], [-2, 2, 0, 2]], dtype=torch.float64) * math.log(2)
    weights = attention_weights(query, key).flatten().tolist()
    shown = re.findall(r"<text [^>]*>(\d\.\d\d)</text>", text)
    assert shown == [f"{round(weight, 6):.2f}" for weight in weights]


@pytest.mark.slow
def test_search_engines_get_the_pages_and_nothing_else(built):
    listed = ET.parse(built / "sitemap.xml").iterfind(".//{*}loc")
    assert sorted(place.text for place in listed) == sorted(URL + name for name in PAGES)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PAGES, *MADE, "index.html"])
def test_a_phone_finds_the_icon_that_it_can_draw(built, soup, name):
    address = head(soup(name), 'link[rel="apple-touch-icon"]', "href")
    with Image.open(built / own_path(name, address)) as icon:
        assert icon.size == (180, 180)


@pytest.mark.slow
def test_the_root_leads_to_the_opening_page_and_shows_its_card(built, soup):
    page = soup("index.html")
    (refresh,) = page.select('meta[http-equiv="refresh"]')
    assert refresh["content"] == f"0; url={PAGES[0]}" == f"0; url={page.a['href']}"
    assert page.title.string == soup(PAGES[0]).h1.get_text().rstrip("#")
    assert head(page, 'link[rel="canonical"]', "href") == URL + PAGES[0]
    assert_card(built, page)


# The page for an address that is not there


@pytest.mark.slow
def test_the_links_of_the_page_for_lost_readers_hold_in_any_folder(built, soup):
    page = soup("404.html")
    found = [tag[a] for a in ("href", "src", "action") for tag in page.select(f"[{a}]")]
    own = [address for address in found if not address.startswith(("#", "https://"))]
    assert len(own) > 40
    for address in own:
        assert (built / own_path("any/depth/at-all", address)).is_file(), address


@pytest.mark.slow
def test_a_lost_reader_gets_a_search_and_every_chapter(soup):
    article = soup("404.html").article
    (form,) = article.select('form[role="search"]')
    assert form.select('input[type="search"][name="q"]')
    assert form.select(f'label[for="{form.input["id"]}"]')
    offered = [own_path("404.html", tag["href"]) for tag in article.select("li a")]
    assert offered == PAGES


# Addresses


@pytest.mark.slow
def test_no_address_of_the_book_leads_nowhere(built):
    assert permalinks.lost(permalinks.listed(), built) == [], (
        "others may link to these: give each its new address in book/moved.toml"
    )


@pytest.mark.slow
def test_every_page_is_in_the_list_of_addresses(built):
    pages = {address for address in permalinks.of(built) if "#" not in address}
    assert pages - set(permalinks.listed()) == set(), "`make book addresses` adds them"


def test_the_list_of_addresses_is_sorted_and_has_none_twice():
    listed = permalinks.listed()
    assert listed == sorted(set(listed))
    assert len(listed) > 400


# Where the address of the book is not known


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Two pages with the theme, built without BOOK_URL."""
    source = tmp_path_factory.mktemp("source")
    done = build_two_pages(source, MOVED)
    assert done.returncode == 0, done.stderr
    return source / "built"


MOVED = """
"old.html" = "two.html"
"former/place.html" = "two.html#now"
"two.html#then" = "two.html#now"
"""


def build_two_pages(source, moves):
    (source / "book").mkdir()
    (source / moved.LIST).write_text(moves, "utf-8")
    names = ["myst_parser", "sphinx.ext.autodoc", "sphinx_book_theme", "tools.sphinx_pages"]
    static = f"html_static_path = [{str(ROOT / 'book' / '_static')!r}]"
    theme = 'html_theme = "sphinx_book_theme"'
    (source / "conf.py").write_text(f"extensions = {names}\n{static}\n{theme}\n", "utf-8")
    (source / "index.md").write_text(f"# One\n\n{LONG}.\n\n```{{toctree}}\ntwo\n```\n", "utf-8")
    (source / "two.md").write_text("# Two\n\nText.\n\n## Now\n\nMore.\n", "utf-8")
    environment = {**outside_of_workflows(), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "sphinx", "-q", "-W", source, source / "built"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_without_its_address_a_page_makes_none_up(alone):
    text = (alone / "index.html").read_text("utf-8")
    page = BeautifulSoup(text, "html.parser")
    assert head(page, 'meta[name="description"]') == f"{LONG}."
    assert page.select('link[rel="canonical"], meta[property^="og:"]') == []
    assert not (alone / "sitemap.xml").exists()


@pytest.mark.slow
def test_without_its_address_the_book_is_taken_to_lie_at_the_root(alone):
    page = BeautifulSoup((alone / "404.html").read_text("utf-8"), "html.parser")
    assert page.article.form["action"] == "/search.html"
    assert [tag["href"] for tag in page.article.select("li a")] == ["/index.html", "/two.html"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_where_the_repository_is_unknown_too_a_page_offers_no_colab(soup, name):
    assert soup(name).select('a[href*="colab.research"], a[title*="Colab"]') == []


# What has moved


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [("old.html", "two.html"), ("former/place.html", "../two.html#now")],
    ids=["page", "section in another folder"],
)
def test_an_old_page_leads_to_the_new_one(alone, old, new):
    page = BeautifulSoup((alone / old).read_text("utf-8"), "html.parser")
    (refresh,) = page.select('meta[http-equiv="refresh"]')
    assert (page.title.string, refresh["content"], page.a["href"]) == ("Two", f"0; url={new}", new)


@pytest.mark.slow
def test_an_old_anchor_is_one_of_the_section_that_it_is_now(alone):
    page = BeautifulSoup((alone / "two.html").read_text("utf-8"), "html.parser")
    (section,) = page.select("section#now")
    assert section.select_one("#then")
    listed = ["two.html#then", "two.html#now", "two.html", "old.html", "two.html#never", "no.html"]
    assert permalinks.lost(listed, alone) == ["two.html#never", "no.html"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('"old.html" = "three.html"', "old.html has moved to three.html, which is no page"),
        ('"two.html" = "index.html"', "two.html is a page, so it has not moved"),
        ('"two.html#then" = "two.html#never"', "two.html#never, which is no section"),
        ('"two.html#then" = "index.html#one"', "two.html#then can move within its page alone"),
    ],
    ids=["no page", "no move", "no section", "another page"],
)
def test_a_move_that_leads_nowhere_is_an_error(tmp_path, line, message):
    (tmp_path / "book").mkdir()
    (tmp_path / moved.LIST).write_text(line, "utf-8")
    env = SimpleNamespace(all_docs={"index": 0, "two": 0})
    with pytest.raises(ConfigError, match=re.escape(message)):
        moved.add_anchors(SimpleNamespace(srcdir=tmp_path, env=env), document(LONG), "two")


@pytest.mark.slow
def test_a_move_that_leads_nowhere_fails_the_build(tmp_path):
    done = build_two_pages(tmp_path, '"two.html#then" = "two.html#never"')
    assert done.returncode != 0
    assert "two.html#never, which is no section" in " ".join(done.stderr.split())


@pytest.mark.parametrize("text", ["example.org/book", "ftp://example.org", "https:///book"])
def test_an_address_that_is_none_is_refused(monkeypatch, text):
    monkeypatch.setenv("BOOK_URL", text)
    with pytest.raises(ConfigError, match=rf"like https://.*not '{text}'"):
        heads.book_url()


@pytest.mark.parametrize("text", [URL, URL.rstrip("/")])
def test_an_address_may_end_with_a_slash(monkeypatch, text):
    monkeypatch.setenv("BOOK_URL", text)
    assert heads.book_url() == URL


# Docstrings


def test_shapes_are_set_as_a_table():
    lines = ["One sentence.", "", "    query  ... i d", "    key    ... j d", "", ">>> 1", "1"]
    expected = [*lines[:2], ".. code-block:: none", "", *lines[2:]]
    assert docstrings.as_meant(lines) == expected


def test_names_between_backquotes_are_set_as_code():
    lines = ["`a` and ``b``.", "", ">>> f'`c`'", "", "    d  `e`"]
    expected = ["``a`` and ``b``.", "", ">>> f'`c`'", "", ".. code-block:: none", "", "    d  `e`"]
    assert docstrings.as_meant(lines) == expected


def test_a_wrapped_line_is_no_table():
    lines = ["A list", "- that goes", "    on here.", "", "The end."]
    assert docstrings.as_meant(lines) == lines


# Lines


def formula(letter):
    return nodes.math("", letter)


def test_a_formula_and_the_marks_that_touch_it_are_one():
    around = [nodes.Text("So ("), formula("a"), nodes.Text("), a "), formula("b"), nodes.Text(".")]
    sentence = nodes.paragraph("", "", *around)
    for each in list(sentence.findall(nodes.math)):
        lines.hold(each)
    assert [held.astext() for held in sentence.findall(nodes.inline)] == ["(a),", "b."]
    assert sentence.astext() == "So (a), a b."


def test_a_formula_that_touches_words_stands_alone():
    sentence = nodes.paragraph("", "", formula("a"), nodes.Text("-fold "), formula("b"))
    for each in list(sentence.findall(nodes.math)):
        lines.hold(each)
    assert sentence.astext() == "a-fold b"
    assert not list(sentence.findall(nodes.inline))


# Another language


CATALOG = """
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8"

msgid "A. <code>i</code>, most of them"
msgstr "A. 大部分 <code>i</code>"

msgid "The numbers"
msgstr "数字"

msgid "**Right.** Yes."
msgstr "**对。**"
"""


@pytest.mark.slow
def test_what_is_folded_is_translated_with_its_summary(tmp_path):
    choice = "A. <code>i</code>, most of them"
    folded = f"<details><summary>{choice}</summary>\n\n**Right.** Yes.\n\n</details>"
    numbers = "<details>\n<summary>The numbers</summary>\n\n1\n\n</details>"
    output = nbformat.v4.new_output("display_data", {"text/markdown": numbers})
    cells = [
        nbformat.v4.new_markdown_cell(f"# Page\n\n{folded}"),
        nbformat.v4.new_code_cell("1", execution_count=1, outputs=[output], id="numbers"),
    ]
    language = {"language_info": {"name": "python", "pygments_lexer": "python"}}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=language)
    nbformat.write(notebook, tmp_path / "index.ipynb")
    catalog = tmp_path / "locales" / "zh_CN" / "LC_MESSAGES" / "index.po"
    catalog.parent.mkdir(parents=True)
    catalog.write_text(CATALOG, "utf-8")
    extensions = ["myst_nb", "tools.sphinx_pages.summaries"]
    settings = ["nb_execution_mode = 'off'", "language = 'zh_CN'", "exclude_patterns = ['*/*']"]
    settings.append(f"extensions = {extensions}")
    (tmp_path / "conf.py").write_text("\n".join(settings), "utf-8")
    for builder in ("gettext", "html"):
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", builder, ".", builder]
        environment = {**outside_of_workflows(), "PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    asked = (tmp_path / "gettext" / "index.pot").read_text("utf-8")
    assert {choice, "The numbers"} <= set(re.findall('"(.*)"', asked))
    page = permalinks.parsed(tmp_path / "html" / "index.html")
    first, second = page.select("details")
    assert first.summary.decode_contents() == "A. 大部分 <code>i</code>"
    assert first.p.get_text() == "对。"
    assert second.summary.get_text() == "数字"
