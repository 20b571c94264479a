"""The book on paper: complete, with its links, its answers and its Chinese words."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from tools import address, browser

pdf = pytest.importorskip("tools.pdf", exc_type=ImportError)
pypdf = pytest.importorskip("pypdf")

ONE = """<html><head></head><body><article class="bd-article"><section id="one">
<h1>One<a class="headerlink" href="#one">#</a></h1>
<p>Score · 自注意力, <a href="two.html#answers">later</a>, <a href="#one">here</a>,
<a href="../_modules/a.html">source</a>,
<a href="https://a.example/">there</a>, 长 <button>x</button>
<span lang="ja">学習</span></p>
<div class="math">\\[\\frac{1}{2}\\]</div>
<pre>{long}</pre>
</section></article></body></html>""".replace("{long}", "x" * 300)
TWO = """<html><body><article><section id="two"><h1>Two</h1><section id="answers"><h2>Answers</h2>
<details id="q"><summary>Why?</summary><p>Because it unfolds.</p></details>
<details class="hide"><summary>Show code cell source</summary><pre>hidden = 1</pre></details>
<img src="../_images/dot.png" loading="lazy" alt="a dot">
</section></section></article></body></html>"""


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """Two small pages in the place of the book's."""
    monkeypatch.delenv("BOOK_URL", raising=False)
    monkeypatch.setattr(pdf, "contents", lambda: iter([("book/one", ""), ("book/two", "Part")]))
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "one.html").write_text(ONE, encoding="utf-8")
    (tmp_path / "book" / "two.html").write_text(TWO, encoding="utf-8")
    shutil.copytree(pdf.ROOT / "book" / "_static" / "mathjax", tmp_path / "_static" / "mathjax")
    (tmp_path / "_static" / "pygments.css").touch()
    (tmp_path / "_images").mkdir()
    shutil.copy(pdf.ROOT / "book" / "_static" / "preview.png", tmp_path / "_images" / "dot.png")
    return tmp_path


def test_a_page_that_is_not_built_is_named(pages):
    (pages / "book" / "two.html").unlink()
    with pytest.raises(pdf.PrintError, match=r"two\.html is not there: run `make book` first"):
        pdf.read(pages)


def test_a_figure_that_is_not_there_is_named(pages):
    (pages / "_images" / "dot.png").unlink()
    with pytest.raises(pdf.PrintError, match=r"two\.html shows .*dot\.png, which is not there"):
        pdf.read(pages)


def test_every_page_of_the_contents_is_read_in_their_order():
    named = [page for page, _ in pdf.contents()]
    assert named[0] == "book/intro"
    assert named.index("book/02_single_head_attention") < named.index("book/api")
    assert all(part for _, part in list(pdf.contents())[1:])


def test_links_lead_to_places_of_the_same_file_or_out_of_the_book_or_nowhere(pages):
    article = pdf.read(pages)[0].article
    leads = {link.get_text(): link["href"] for link in article.find_all("a")}
    assert leads == {
        "later": "#book-two--answers",
        "here": "#book-one--one",
        "there": "https://a.example/",
    }
    assert article.find(id="book-one--one").name == "section"


def test_a_link_to_what_is_not_printed_leads_to_the_published_pages(pages, monkeypatch):
    monkeypatch.setattr(address, "pages", lambda: "https://a.example/book")
    (source,) = (a for a in pdf.read(pages)[0].article.find_all("a") if a.get_text() == "source")
    assert source["href"] == "https://a.example/book/_modules/a.html"


def test_answers_are_unfolded_and_what_says_click_me_is_gone(pages):
    article = pdf.read(pages)[1].article
    assert article.find("details") is None
    assert article.select_one("#book-two--q > p.summary").get_text() == "Why?"
    assert "hidden = 1" in article.get_text()
    assert "Show code cell" not in article.get_text()


def test_chinese_words_are_marked_and_other_languages_stay_what_they_are(pages):
    article = pdf.read(pages)[0].article
    assert [tag.get_text() for tag in article.select("[lang=zh-Hans]")] == ["自注意力", "长"]
    assert article.select_one("[lang=ja]").get_text() == "学習"


def test_a_glyph_of_a_radical_is_called_by_its_word():
    table = (
        "1 beginbfchar\n<0A> <2F08>\n<0B> <81EA>\nendbfchar\n"
        "2 beginbfrange\n<0010> <0011> <2ED3>\n<0020> <0029> <4E00>\nendbfrange\n"
    )
    assert pdf.with_words(table) == (
        "1 beginbfchar\n<0A> <4EBA>\n<0B> <81EA>\nendbfchar\n"
        "2 beginbfrange\n<0010> <0010> <957F>\n<0011> <0011> <95E8>\n"
        "<0020> <0029> <4E00>\nendbfrange\n"
    )


def test_the_pdf_has_text_pages_numbers_links_and_an_outline(pages):
    target = pages / "_downloads" / pdf.NAME
    with ThreadPoolExecutor() as pool:  # this one may hold the browser of other tests
        assert pool.submit(pdf.make, pages, target).result() == 4
    assert b"/ObjStm" in target.read_bytes()  # packed
    reader = pypdf.PdfReader(target)
    assert reader.root_object["/MarkInfo"]["/Marked"]  # for screen readers, still
    _, contents, one, two = (page.extract_text() for page in reader.pages)
    assert "Contents" in contents
    assert [line.split()[-1] for line in contents.split("\n") if "Answers" in line] == ["4"]
    assert "自注意力" in one
    assert "长" in one  # and not the radical of the same shape
    assert "x" * 300 in one.replace("\n", "")  # nothing is cut at the edge
    assert "frac" not in one  # the formula is set
    assert "Because it unfolds." in two
    assert len(reader.pages[3].images) == 1
    assert [entry.title for entry in flat(reader.outline)][-3:] == ["One", "Two", "Answers"]
    assert pdf.page_numbers(target)["book-two--answers"] == 4


def flat(outline):
    for entry in outline:
        yield from flat(entry) if isinstance(entry, list) else [entry]


def test_a_word_that_the_pdf_lacks_is_told_with_what_to_install(pages):
    chapters = pdf.read(pages)
    empty = pages / "empty.pdf"
    writer = pypdf.PdfWriter()
    writer.add_blank_page(100, 100)
    writer.write(empty)
    (line,) = pdf.faults(empty, chapters)
    assert line.startswith("7 Chinese characters are not in it")
    assert "fonts-noto-cjk" in line


def test_a_font_that_is_not_in_the_file_is_named(pages):
    from pypdf.generic import DictionaryObject, NameObject

    writer = pypdf.PdfWriter()
    page = writer.add_blank_page(100, 100)
    name = NameObject
    font = {name("/Subtype"): name("/TrueType"), name("/BaseFont"): name("/Arial")}
    fonts = DictionaryObject({name("/F1"): DictionaryObject(font)})
    page[name("/Resources")] = DictionaryObject({name("/Font"): fonts})
    writer.write(pages / "outside.pdf")
    assert pdf.faults(pages / "outside.pdf", [])[0] == "it does not hold its fonts Arial"


def test_the_opening_page_offers_the_pdf_once_it_is_there(pages):
    page = pages / "book" / "one.html"
    page.write_text(f"<p>a</p>{pdf.OFFER}<p>b</p>")
    pdf.offer(pages, 7)
    link = f'<a href="../_downloads/{pdf.NAME}">The whole book as a PDF</a>, 7 pages.'
    assert page.read_text() == f"<p>a</p><p>{link}</p><p>b</p>"
    assert pdf.OFFER in (pdf.ROOT / "book" / "intro.md").read_text("utf-8")


def test_without_a_browser_the_command_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(browser, "find", lambda: None)
    with pytest.raises(SystemExit) as exit_:
        pdf.main([])
    assert exit_.value.code == 1
    assert "apt install chromium" in capsys.readouterr().err
