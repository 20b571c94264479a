"""Print the book: all its pages as one PDF.

    python -m tools.pdf                   build the book, print it, and offer the PDF on its pages
    python -m tools.pdf --pages FOLDER    the same with pages that are built

The pages are put together in the order of the contents, with answers unfolded, and a browser sets
the formulas and prints the whole, twice: from the first copy it is read on which page each chapter
begins, for the contents of the second. The command fails where a word of the pages, Chinese ones
among them, is not text of the PDF or a font is not inside it.
"""

import argparse
import re
import shutil
import sys
import tempfile
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import urljoin, urlsplit

import pikepdf
import yaml
from bs4 import BeautifulSoup, Tag
from bs4.element import NavigableString
from playwright.sync_api import sync_playwright
from pypdf import PageObject, PdfReader, PdfWriter
from pypdf.generic import DictionaryObject, StreamObject

from tools import address, browser, steps

ROOT = steps.ROOT
NAME = "attention-from-the-formula-up.pdf"
OFFER = "<!-- the whole book -->"  # of the opening page: a link to the PDF takes its place
STYLE = Path(__file__).with_name("print.css")
HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]+")
# A font draws the radical "big" and the word "big" by one glyph, and the browser calls it by the
# first of its two names: a search for the word would find nothing. Most radicals are normalised by
# Unicode to words; these, simplified ones, are not.
RADICALS = dict(
    zip(
        "⺟⺠⻁⻄⻅⻆⻉⻋⻑⻓⻔⻘⻚⻛⻜⻝⻢⻣⻤⻥⻦⻨⻩⻬⻮⻰⻳",
        "母民虎西见角贝车長长门青页风飞食马骨鬼鱼鸟麦黄齐齿龙龟",
        strict=True,
    )
)
MATHJAX = "{options: {processHtmlClass: 'math', ignoreHtmlClass: 'book'}, svg: {scale: 0.9}}"
PATIENCE = 10 * 60_000  # milliseconds that setting all formulas may take


class PrintError(Exception):
    """Why there is no PDF, or none that is worth having."""


@dataclass(frozen=True)
class Chapter:
    page: str  # as in the contents of the book: book/intro
    part: str
    article: Tag

    @property
    def name(self) -> str:
        return self.page.replace("/", "-")

    @property
    def title(self) -> str:
        heading = self.article.h1
        assert heading is not None, self.page
        return heading.get_text(" ", strip=True)


# From pages to one page


def contents() -> Iterator[tuple[str, str]]:
    """The pages in reading order, each with the part that it belongs to."""
    told = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    yield told["root"], ""
    for part in told["parts"]:
        for chapter in part["chapters"]:
            yield chapter["file"], part["caption"]


def read(pages: Path) -> list[Chapter]:
    chapters = []
    for page, part in contents():
        file = pages / f"{page}.html"
        if not file.is_file():
            raise PrintError(f"{file} is not there: run `make book` first")
        article = BeautifulSoup(file.read_text(encoding="utf-8"), "html.parser").article
        assert article is not None, page
        chapters.append(Chapter(page, part, article))
    names = {chapter.page: chapter.name for chapter in chapters}
    for chapter in chapters:
        prepare(chapter, pages, names)
    return chapters


def prepare(chapter: Chapter, pages: Path, names: Mapping[str, str]) -> None:
    """Make a page's article part of one long page: without what needs a mouse, and with
    addresses that hold there.
    """
    article = chapter.article
    for unwanted in article.select("script, button, input, a.headerlink, .toctree-wrapper"):
        unwanted.decompose()
    for link in article.find_all("a"):
        if link.select_one(".viewcode-link") or "viewcode-back" in (link.get("class") or []):
            link.decompose()
    for tag in article.find_all(True):
        for attribute in ("id", "name"):
            if tag.has_attr(attribute):
                tag[attribute] = f"{chapter.name}--{tag[attribute]}"
    article["id"] = chapter.name
    for link in article.find_all("a", href=True):
        lead(link, chapter, names)
    for image in article.find_all("img"):
        file = (pages / chapter.page).parent / str(image["src"])
        if not file.is_file():
            raise PrintError(f"{chapter.page}.html shows {file}, which is not there: build anew")
        image["src"] = file.resolve().as_uri()
        image.attrs.pop("loading", None)
    for folded in article.find_all("details"):
        unfold(folded)
    mark_chinese(article)


def lead(link: Tag, chapter: Chapter, names: Mapping[str, str]) -> None:
    """Let a link lead to its place in the PDF, to another site, or nowhere."""
    target = urlsplit(urljoin(f"https://book/{chapter.page}.html", str(link["href"])))
    if target.netloc != "book":
        return
    page = target.path.strip("/").removesuffix(".html")
    if page in names:
        link["href"] = f"#{names[page]}" + (f"--{target.fragment}" if target.fragment else "")
    elif pages := address.pages():
        link["href"] = f"{pages}{target.path}"
    else:
        link.unwrap()


def unfold(folded: Tag) -> None:
    """On paper nothing unfolds: an answer stands below what it answers."""
    folded.name = "div"
    folded.attrs = {"class": "answer", **({"id": folded["id"]} if folded.has_attr("id") else {})}
    summary = folded.find("summary", recursive=False)
    if not isinstance(summary, Tag):
        return
    if "Show code cell" in summary.get_text() or "Hide code cell" in summary.get_text():
        summary.decompose()  # says what a click does
    else:
        summary.name = "p"
        summary["class"] = "summary"


def mark_chinese(article: Tag) -> None:
    """Say which words are Chinese, so that a font for Chinese and not for Japanese sets them."""
    for text in article.find_all(string=HAN):
        holder = text.parent
        if holder is None or holder.find_parent(lang=True) or holder.has_attr("lang"):
            continue
        end = 0
        for found in HAN.finditer(text):
            text.insert_before(NavigableString(text[end : found.start()]))
            word = Tag(name="span", attrs={"lang": "zh-Hans"})
            word.string = found[0]
            text.insert_before(word)
            end = found.end()
        text.replace_with(NavigableString(text[end:]))


def listed(chapters: Sequence[Chapter], numbers: Mapping[str, int]) -> Iterator[str]:
    """The lines of the contents, with the numbers of pages as far as they are known."""
    part = ""
    for chapter in chapters:
        if chapter.part != part:
            part = chapter.part
            yield f"<p>{part}</p>"
        yield "<ol>" + entry(chapter.name, chapter.title, numbers)
        yield "<ol>"
        for heading in chapter.article.find_all("h2"):
            holder = heading.find_parent("section")
            if holder is not None and holder.has_attr("id"):
                yield entry(str(holder["id"]), heading.get_text(" ", strip=True), numbers) + "</li>"
        yield "</ol></li></ol>"


def entry(name: str, title: str, numbers: Mapping[str, int]) -> str:
    number = numbers.get(name, 999)
    return f'<li><a href="#{name}" data-page="{number}"><span>{title}</span><i></i></a>'


def one_page(chapters: Sequence[Chapter], pages: Path, numbers: Mapping[str, int]) -> str:
    settings = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    title = settings["title"]
    static = pages / "_static"
    mathjax = static / settings["sphinx"]["config"]["mathjax_path"]
    return "\n".join(
        [
            '<!doctype html><html lang="en" data-theme="light"><head><meta charset="utf-8">',
            f"<title>{title}</title>",
            f'<link rel="stylesheet" href="{(static / "pygments.css").as_uri()}">',
            f"<style>{STYLE.read_text(encoding='utf-8')}</style>",
            f"<script>MathJax = {MATHJAX}</script>",
            f'<script defer src="{mathjax.as_uri()}"></script></head><body class="book">',
            f'<div class="title-page"><h1>{title}</h1><p>{settings["author"]}</p></div>',
            '<nav class="contents"><h2>Contents</h2>',
            *listed(chapters, numbers),
            "</nav>",
            *(str(chapter.article) for chapter in chapters),
            "</body></html>",
        ]
    )


# From one page to a PDF


def print_page(html: str, target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        file = Path(folder, "book.html")
        file.write_text(html, encoding="utf-8")
        chromium = driver.chromium.launch(executable_path=browser.find(), args=browser.FLAGS)
        page = chromium.new_page(color_scheme="light", offline=True)
        page.set_default_timeout(PATIENCE)
        page.goto(file.as_uri(), timeout=PATIENCE)
        page.wait_for_function("window.MathJax?.startup?.promise")
        page.evaluate("MathJax.startup.promise")
        page.evaluate("document.fonts.ready")
        page.pdf(
            path=target,
            prefer_css_page_size=True,
            print_background=True,
            outline=True,
            tagged=True,
        )
        chromium.close()


def page_numbers(pdf: Path) -> dict[str, int]:
    """On which page, counted from 1, each name that a link leads to stands."""
    reader = PdfReader(pdf)
    found = {}
    for name, place in reader.named_destinations.items():
        number = reader.get_destination_page_number(place)
        if number is not None:
            found[name.lstrip("/")] = number + 1
    return found


def faults(pdf: Path, chapters: Sequence[Chapter]) -> list[str]:
    """What a reader would miss in the PDF, a line each."""
    reader = PdfReader(pdf)
    text = "".join(page.extract_text() for page in reader.pages)
    expected = set("".join(HAN.findall("".join(c.article.get_text() for c in chapters))))
    lines = []
    if missing := sorted(expected - set(text)):
        lines.append(
            f"{len(missing)} Chinese characters are not in it, {missing[0]} among them: install a "
            "font that has them (Debian and Ubuntu: apt install fonts-noto-cjk)"
        )
    outside = sorted({name for page in reader.pages for name in fonts_outside(page)})
    if outside:
        lines.append(f"it does not hold its fonts {', '.join(outside)}")
    return lines


def fonts(page: PageObject) -> Iterator[DictionaryObject]:
    resources = cast(DictionaryObject, page["/Resources"])
    for font in cast(DictionaryObject, resources.get("/Font", {})).values():
        yield cast(DictionaryObject, font.get_object())


def fonts_outside(page: PageObject) -> Iterator[str]:
    """Fonts of a page that a reader's machine would have to have."""
    for font in fonts(page):
        inner = font.get("/DescendantFonts", [font])[0].get_object()
        described = inner.get("/FontDescriptor", {})
        drawn = str(font["/Subtype"]) == "/Type3"  # its glyphs are drawings in the file itself
        if not drawn and not any("/FontFile" in key for key in described):
            yield str(font["/BaseFont"]).lstrip("/")


# What is text in a PDF


def call_words_by_their_names(pdf: Path) -> None:
    """Let Chinese words be found in the PDF, and be copied from it."""
    writer = PdfWriter(clone_from=pdf)
    for page in writer.pages:
        for font in fonts(page):
            if table := font.get("/ToUnicode"):
                stream = cast(StreamObject, table.get_object())
                stream.set_data(with_words(stream.get_data().decode("ascii")).encode("ascii"))
    writer.write(pdf)


def with_words(table: str) -> str:
    """A font's table of what its glyphs mean, with words in the place of radicals.

    A line of it has a glyph and a character, or the first and the last of some glyphs and the
    character of the first.
    """

    def one(found: re.Match[str]) -> str:
        return f"{found[1]} <{word(int(found[2], 16)):04X}>"

    def some(found: re.Match[str]) -> str:
        first, last, means = (int(digits, 16) for digits in found.groups())
        if all(word(code) == code for code in range(means, means + last - first + 1)):
            return found[0]
        names = [f"<{code:0{len(found[1])}X}>" for code in range(first, last + 1)]
        words = [f"<{word(means + count):04X}>" for count in range(len(names))]
        return "\n".join(map(" ".join, zip(names, names, words, strict=True)))

    table = re.sub(r"(?m)^<(\w+)> <(\w+)> <(\w{4})>$", some, table)
    return re.sub(r"(?m)^(<\w+>) <(\w{4})>$", one, table)


def word(code: int) -> int:
    """The word that a radical is, and anything else as it is."""
    radical = chr(code)
    if not "\u2e80" <= radical <= "\u2fdf":
        return code
    return ord(RADICALS.get(radical) or unicodedata.normalize("NFKC", radical))


def pack(pdf: Path) -> None:
    """Compress what tells a screen reader the order of things, two thirds of a printed file."""
    with pikepdf.open(pdf, allow_overwriting_input=True) as whole:
        whole.save(pdf, object_stream_mode=pikepdf.ObjectStreamMode.generate)


def make(pages: Path, target: Path) -> int:
    """Print the book, and return how many pages it has."""
    chapters = read(pages)
    with tempfile.TemporaryDirectory() as folder:
        printed = Path(folder, "book.pdf")
        print_page(one_page(chapters, pages, {}), printed)
        numbers = page_numbers(printed)
        print_page(one_page(chapters, pages, numbers), printed)
        call_words_by_their_names(printed)
        pack(printed)
        if page_numbers(printed) != numbers:
            raise PrintError("the contents moved what they list: print again, or mend print.css")
        if wrong := faults(printed, chapters):
            raise PrintError(f"No PDF is written: {'; '.join(wrong)}")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(printed, target)
        return len(PdfReader(target).pages)


def offer(pages: Path, count: int) -> None:
    """Let the opening page offer the PDF that now lies beside it."""
    page = pages / f"{next(contents())[0]}.html"
    link = f'<a href="../_downloads/{NAME}">The whole book as a PDF</a>, {count} pages.'
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace(OFFER, f"<p>{link}</p>"), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.pdf",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--pages", type=Path, help="built pages (default: build them)")
    options = parser.parse_args(arguments)
    if browser.find() is None:
        parser.exit(
            1,
            "No Chromium or Chrome here, which prints the pages: install one (Debian and Ubuntu: "
            "apt install chromium).\n",
        )
    if options.pages is None and steps.run_book():
        return 1
    pages = (options.pages or steps.BUILD / "html").resolve()
    target = pages / "_downloads" / NAME
    try:
        count = make(pages, target)
    except PrintError as error:
        parser.exit(1, f"{error}\n")
    offer(pages, count)
    print(f"{count} pages: {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
