"""What the project says of itself to those who cite it, change it or ask what is new."""

import re
import shutil
import tomllib

import pytest
import yaml

from tools import new_page, rules, steps

ROOT = steps.ROOT
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
BOOK = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
CHANGELOG = (ROOT / "CHANGELOG.md").read_text("utf-8")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")


def test_the_citation_names_the_package_as_it_is():
    assert CITATION["title"].replace("_", "-") == PROJECT["name"]
    for key in ("version", "license", "keywords"):
        assert CITATION[key] == PROJECT[key]
    assert CITATION["authors"] == PROJECT["authors"]
    assert CITATION["abstract"] == f"{PROJECT['description']}."


def test_the_citation_of_the_book_names_the_book():
    book = CITATION["preferred-citation"]
    assert (book["title"], str(book["year"])) == (BOOK["title"], BOOK["copyright"])
    assert book["authors"] == [{"name": BOOK["author"]}] == CITATION["authors"]
    assert "Attribution 4.0" in (ROOT / "LICENSE-TEXT").read_text("utf-8")
    assert book["license"] == "CC-BY-4.0"


def test_the_newest_entry_of_the_changelog_is_of_this_version():
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", CHANGELOG, re.MULTILINE)
    assert versions[0] == PROJECT["version"]
    assert versions == sorted(versions, key=lambda v: [*map(int, v.split("."))], reverse=True)
    assert not re.search(r"#\d", CHANGELOG)  # readers don't know our numbers


def test_what_contributors_are_told_to_type_is_there():
    asked = set(
        re.findall(
            r"\bmake ([a-z]+)\b", "\n".join(re.findall(r"`[^`]+`|^make .*", CONTRIBUTING, re.M))
        )
    )
    assert {"lab", "page", "refresh", "lint", "book", "test"} <= asked
    for target in asked:
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target
        assert f'@echo "make {target} ' in MAKEFILE, target


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "CHANGELOG.md"])
def test_files_that_are_named_are_there(page):
    text = (ROOT / page).read_text("utf-8")
    names = re.findall(r"\]\(([^)#]+)\)", text.replace("](bibliography.md)", ""))
    names += re.findall(r"`((?:book/|_)[\w./]+\.(?:md|yml|bib))`", text)
    assert all((ROOT / name).is_file() for name in names)


def test_contributors_are_told_the_limits_that_the_rules_hold():
    rows = dict(re.findall(r"^\| ([a-z ]+) \| (.+ \| .+) \|$", CONTRIBUTING, re.MULTILINE))
    told = {
        name: [int(n) for n in re.findall(r"\d+", row.replace(",", ""))]
        for name, row in rows.items()
    }
    chapter, sibling = rules.CHAPTER_BUDGET, rules.SIBLING_BUDGET
    assert told == {
        "words": [chapter.words, sibling.words],
        "code cells": [chapter.cells, sibling.cells],
        "figures": [chapter.figures, sibling.figures],
        "questions to predict": [rules.QUESTIONS, rules.SIBLING_QUESTIONS],
        "exercises": [*rules.EXERCISES, 1, rules.EXERCISES[1]],
    }
    assert f"at most {rules.WIDTH} characters" in CONTRIBUTING
    assert f"may have {rules.ROOM_BUDGET.cells} code cells" in CONTRIBUTING


# make page


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A book in which a chapter and what goes deeper than one were begun."""
    root = tmp_path_factory.mktemp("book")
    (root / "book").mkdir()
    for name in ("_toc.yml", "book/intro.md"):
        shutil.copy(ROOT / name, root / name)
    return root, [new_page.begin(name, root) for name in ("01z_shift_scores", "99_end")]


@pytest.mark.slow
def test_a_page_that_was_begun_keeps_all_rules(begun):
    for path in begun[1]:
        assert rules.problems(path) == []
        assert list(rules.questions(rules.Page(path))) == []


@pytest.mark.slow
def test_a_page_that_was_begun_has_its_place_in_the_book(begun):
    root, paths = begun
    contents = re.findall(r"file: book/(\d\w+)", (root / "_toc.yml").read_text("utf-8"))
    rows = re.findall(
        r"^\| \[.*?\]\((\w+)\.ipynb\) .* \d+ \|$", (root / "book/intro.md").read_text("utf-8"), re.M
    )
    assert contents == rows == sorted(contents)
    assert {path.stem for path in paths} <= set(contents)
    assert len(contents) == 2 + len(list((ROOT / "book").glob("[0-9]*.ipynb")))


@pytest.mark.parametrize(
    "name", ["", "shift", "1_shift", "01_", "01 shift", "../01_shift", "01ab_x"]
)
def test_a_name_that_is_none_is_refused_before_anything_is_written(name, capsys):
    assert new_page.main([name]) == 2
    assert "is no name of a page: two digits and a title" in capsys.readouterr().err


def test_a_page_that_is_there_is_left_as_it_is(capsys):
    assert new_page.main(["04_masking"]) == 2
    assert "book/04_masking.ipynb is there already" in capsys.readouterr().err


def test_nothing_is_left_to_write():
    pages = [*(ROOT / "book").rglob("*.ipynb"), *(ROOT / "book").rglob("*.md")]
    assert [path.name for path in pages if re.search(r"\bWRITE\b", path.read_text("utf-8"))] == []
