"""Every page of the book, visited once: wide and narrow, light and dark."""

from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest

from . import conftest

LOOK = Path(__file__).with_name("look.js").read_text(encoding="utf-8")
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"]
# Of axe's rules these two depend on colours, and so on the theme.
COLOURS = ["color-contrast", "link-in-text-block"]
AXE = """
async ([only, alone]) => {
    if (!look.markKinds() && alone) return [];
    if (alone) look.putAway();
    axe.configure({ rules: [{ id: "color-contrast", selector: "[data-kind]" }] });
    const { violations } = await axe.run({
        runOnly: only,
        rules: { "target-size": { enabled: true } },
        resultTypes: ["violations"],
        preload: false, // no rule here reads style sheets, and fetching them goes wrong
    });
    look.bringBack();
    const told = (id, node) => `${id}: ${node.target} ${node.failureSummary.replace(/\\s+/g, " ")}`;
    return violations.flatMap(({ id, nodes }) => nodes.map((node) => told(id, node)));
}"""


def barriers(page):
    """What axe-core objects to, a line for each element."""
    return page.evaluate(AXE, [WCAG, False])


def pale(page):
    """What it objects to in colours that this page has not shown before."""
    return page.evaluate(AXE, [COLOURS, True])


@dataclass
class Seen:
    """What one visit found."""

    faults: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)
    formulas: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    focus: list[str] = field(default_factory=list)
    wide: list[str] = field(default_factory=list)
    narrow: list[str] = field(default_factory=list)
    barriers: list[str] = field(default_factory=list)
    dark: list[str] = field(default_factory=list)
    phone: list[str] = field(default_factory=list)


def visited(page, url, address):
    """Look at a page from all sides, with all that unfolds unfolded."""
    from axe_playwright_python.base import AXE_SCRIPT

    seen = Seen()
    conftest.set_up(page, reduced_motion="reduce")
    with conftest.listening(page, address, seen.faults):
        page.goto(url)
        page.evaluate(LOOK)
        page.evaluate(AXE_SCRIPT)
        page.evaluate("look.rested().then(look.unfold)")
        vars(seen).update(page.evaluate("look.all()"))
        seen.wide = page.evaluate("look.overflow()")
        seen.barriers = barriers(page)
        put_on(page, "dark")
        seen.dark = pale(page)
        page.evaluate("look.fold()")
        page.set_viewport_size(conftest.NARROW)
        page.evaluate("look.rested().then(look.unfold)")
        seen.narrow = page.evaluate("look.overflow()")
        seen.phone = barriers(page)
        put_on(page, "light")
        seen.phone += pale(page)
    return seen


def put_on(page, theme):
    page.emulate_media(color_scheme=theme)
    page.evaluate("look.settled()")
    assert page.evaluate("document.documentElement.dataset.theme") in (theme, None)


@pytest.fixture(scope="session")
def look(tab, address):
    """look(path): what a visit of that page found."""

    @cache
    def at(path):
        with conftest.emptied(tab) as page:
            return visited(page, f"{address}/{path}", address)

    return at


def none_of(complaints):
    """Fail with all of them, one a line, and no Python in between."""
    if complaints:
        pytest.fail("\n".join(complaints), pytrace=False)


def test_a_page_keeps_quiet_and_asks_no_other_server(look, path):
    none_of(look(path).faults)


def test_nothing_of_a_page_is_fetched_from_elsewhere(look, address, path):
    none_of([url for url in look(path).hints if not conftest.own(url, address)])


def test_formulas_are_set(look, path):
    none_of(look(path).formulas)


def test_images_load_and_say_what_they_show(look, path):
    none_of(look(path).images)


def test_a_wide_page_does_not_scroll_sideways(look, path):
    none_of(look(path).wide)


def test_a_phone_does_not_scroll_a_page_sideways(look, path):
    none_of(look(path).narrow)


def test_nothing_bars_a_reader_from_a_page(look, path):
    none_of(look(path).barriers)


def test_dark_colours_stand_out(look, path):
    none_of(look(path).dark)


def test_nothing_bars_a_reader_with_a_phone(look, path):
    none_of(look(path).phone)


def test_the_focus_is_seen_wherever_it_is(look, path):
    none_of(look(path).focus)


# Links


class Written(HTMLParser):
    """The anchors and the links of a page as it is written, before any script."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links = {"", "top"}, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id" or (tag, name) == ("a", "name"):
                self.anchors.add(value)
            if (tag, name) == ("a", "href"):
                self.links.append(value)


@cache
def written(file):
    return Written(file.read_text(encoding="utf-8"))


def broken(site, address, url):
    """Whether a link leads nowhere in the book."""
    if not conftest.own(url, address):
        return False
    url, anchor = urldefrag(url)
    file = site / unquote(url.removeprefix(address).partition("?")[0]).strip("/")
    if file.is_dir():
        file /= "index.html"
    if not file.is_file():
        return True
    state = "=" in anchor  # of the page "Play with attention", and no place on it
    return not state and file.suffix == ".html" and unquote(anchor) not in written(file).anchors


def test_links_lead_somewhere(look, site, address, path):
    none_of([url for url in look(path).links if broken(site, address, url)])


def test_the_links_of_the_packages_source_lead_somewhere(site, address):
    pages = sorted((site / "_modules").rglob("*.html"))
    for page in pages:
        here = f"{address}/{page.relative_to(site).as_posix()}"
        urls = [urljoin(here, link) for link in written(page).links]
        none_of([f"{here}: {url}" for url in urls if broken(site, address, url)])
    assert len(pages) > 10


def test_a_page_that_has_moved_leads_to_where_it_is(visit, site, address):
    moved = dict(conftest.sending(site))
    assert moved["index.html"] == "book/intro.html"
    for old, new in moved.items():
        page = visit(old)
        page.wait_for_url(urljoin(f"{address}/{old}", new))


def test_a_link_that_leads_nowhere_is_found(site, address):
    good = ["search.html", "search.html?q=a#top", "", "book/play.html#play=1&i=a", "_sources/"]
    bad = ["nowhere.html", "search.html#nowhere", "book/nowhere/", "_static/nowhere.css"]
    none_of([url for url in good[:-1] if broken(site, address, f"{address}/{url}")])
    assert all(broken(site, address, f"{address}/{url}") for url in bad)
    assert not broken(site, address, "https://example.org/nowhere")


SEARCH = "search.html?q=softmax"


def found_by_search(page):
    links = page.locator("#search-results li a")
    links.first.wait_for()
    urls = links.evaluate_all("all => all.map(link => link.href)")
    assert len(urls) > 3
    assert any("attention_formula" in url for url in urls)
    return urls


def test_the_search_finds_a_term_and_leads_to_it(visit, site, address):
    urls = found_by_search(visit(SEARCH))
    none_of([url for url in urls if broken(site, address, url)])


# Read as files


@pytest.fixture
def offline(browser):
    """A page without a network."""
    with conftest.new_context(browser, offline=True) as context:
        yield context.new_page()


@pytest.mark.parametrize("name", ["01_attention_formula", "intro", "play"])
def test_a_page_works_as_a_file(offline, site, name):
    faults = []
    with conftest.listening(offline, site.as_uri(), faults):
        offline.goto(f"{site.as_uri()}/book/{name}.html")
        offline.evaluate(LOOK)
        offline.evaluate("look.settled()")
    none_of(faults)
    none_of(offline.evaluate("look.formulas()"))
    none_of(offline.evaluate("look.images()"))


def test_the_search_works_in_files(offline, site):
    """Without excerpts: Sphinx fetches them, and browsers let no file fetch another."""
    offline.goto(f"{site.as_uri()}/{SEARCH}")
    urls = found_by_search(offline)
    none_of([url for url in urls if broken(site, site.as_uri(), url)])


# Keyboard


@pytest.mark.parametrize("size", [conftest.WIDE, conftest.NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("name", ["book/01_attention_formula.html", "search.html"])
def test_tab_stops_everywhere_once_and_in_sight(visit, name, size):
    page = visit(name, viewport=size, reduced_motion="reduce")
    page.evaluate(LOOK)
    page.evaluate("look.settled()")
    number = page.evaluate("look.stops()")
    stops = []
    page.evaluate("document.activeElement.blur()")
    for _ in range(number):
        page.keyboard.press("Tab")
        stops.append(page.evaluate("look.stop()"))
    assert sorted(stop["at"] for stop in stops) == list(range(number))
    none_of([stop["hidden"] for stop in stops if stop["hidden"]])


def test_the_first_stop_skips_to_the_text(visit):
    page = visit("book/intro.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent").strip() == "Skip to main content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#main-content') !== null")


# That the instruments work

BAD = """<!doctype html><html lang="en"><head><title>Bad \\frac{1}{2}</title></head>
<body><main><article style="width: 100%">
<h1>Bad</h1>
<style>@media (prefers-color-scheme: dark) { .too { color: #888 !important } }</style>
<p style="color: #aaa; background: #fff">Pale words.</p>
<p class="too" style="color: #000; background: #fff">Pale words in the dark.</p>
<p>So $x^2$ it is. <code>$HOME</code></p>
<span class="math">\\(y\\)</span>
<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=" alt="a.png">
<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">
<img src="data:image/png;base64,nothing" alt="A picture of nothing at all">
<div style="width: 2000px">Wide.</div>
<div style="overflow-x: auto"><div style="width: 2000px">Wide in a box.</div></div>
<div style="overflow-x: hidden"><div style="width: 1500px">Cut.</div></div>
<button style="outline: none; border: 1px solid">Where am I?</button> <button>Here</button>
</article></main></body></html>"""


def test_each_fault_of_a_bad_page_is_found(tab):
    from axe_playwright_python.base import AXE_SCRIPT

    page = tab
    conftest.set_up(page)
    page.set_content(BAD)
    page.evaluate(LOOK)
    page.evaluate(AXE_SCRIPT)
    page.evaluate("look.settled()")
    found = {name: page.evaluate(f"look.{name}()") for name in ("formulas", "images", "overflow")}
    kinds = [each.partition(":")[0] for each in found["formulas"]]
    assert kinds == ["not set", "raw", "raw", "raw"]
    assert len(found["images"]) == 3
    kinds = [" ".join(each.rpartition("” ")[2].split()[:2]) for each in found["overflow"]]
    assert kinds == ["the page", "ends at", "is cut", "ends at"]
    assert page.evaluate("look.focus()") == ["button “Where am I?”"]
    rules = {each.partition(":")[0] for each in barriers(page)}
    assert {"color-contrast", "image-alt"} <= rules
    page.emulate_media(color_scheme="dark")
    rules = {each.partition(":")[0] for each in pale(page)}
    assert rules == {"color-contrast"}  # of words that only now are shown, or look like this
