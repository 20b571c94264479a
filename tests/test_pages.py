"""What tools/sphinx_pages does to the pages of the book, on the pages themselves.

The book is built once for all of these tests, from the stored outputs of its notebooks and as if
it were published at URL.
"""

import base64
import gzip
import os
import re
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
import yaml
from bs4 import BeautifulSoup
from filelock import FileLock
from fontTools.ttLib import TTFont
from PIL import Image

from tools import notebooks
from tools.sphinx_pages import docstrings, icons

ROOT = notebooks.ROOT
URL = "https://example.org/attention/"
BUDGET = 300_000  # bytes of a page besides MathJax and figures, as they travel


def in_contents():
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    chapters = [chapter["file"] for part in contents["parts"] for chapter in part["chapters"]]
    return [contents["root"], *chapters]


PAGES = [f"{name}.html" for name in in_contents()]
MADE = ["404.html", "genindex.html", "search.html"]  # by Sphinx, without a source


@pytest.fixture(scope="session")
def built(tmp_path_factory, worker_id):
    """The folder of pages; with several workers, the first that needs it builds it for all."""
    shared = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        shared = shared.parent
    html = shared / "book" / "_build" / "html"
    with FileLock(shared / "book.lock", timeout=1200):
        if not html.exists():
            build(shared / "book")
    return html


def build(folder):
    folder.mkdir()
    settings = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    settings["execute"]["execute_notebooks"] = "off"
    (folder / "_config.yml").write_text(yaml.safe_dump(settings), "utf-8")
    tool = Path(sys.executable).with_name("jupyter-book")
    command = [tool, "build", ".", "--config", folder / "_config.yml", "--path-output", folder]
    done = subprocess.run(
        [*command, "-q", "-W", "-n", "--keep-going"],
        cwd=ROOT,
        env={**os.environ, "BOOK_URL": URL, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def soup(built):
    """soup(name) is a page of the book, read once."""
    read = {}

    def parsed(name):
        if name not in read:
            read[name] = BeautifulSoup((built / name).read_text("utf-8"), "html.parser")
        return read[name]

    return parsed


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
                assert (int(tag["width"]), int(tag["height"])) == picture.size, tag
            seen += 1
    assert seen > 20


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
