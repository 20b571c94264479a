"""Numbers, and the links that a reader would otherwise have to search for.

Notebooks are plain Markdown, to be read in JupyterLab and on GitHub as well. So nothing of this
stands in their cells; it is added when pages are built.

Numbers. In chapter 3, sections become 3.1, 3.2, figures Figure 3.1, exercises Exercise 3.1; an
equation has the number that its `\\tag{3.1}` gives it, which a notebook shows as well. Addresses
don't change. "Figure 3.2", "exercise 3b.1", "section 4.5", "equation 1.3" in a sentence, and
"exercise 2" within its own chapter, lead there, and so does "chapter 4" where a page says it first.
A number that does not exist is a warning, and the strict build fails.

Terms. The first use of each term of the glossary leads to it, once a page, and says in a hover what
the term means. On the page that introduces a term its bold definition counts as the first use.

Names. The first use of each name of the package leads to the API reference, as do the names that a
cell imports, and each entry there leads back to the pages that use it.

Outputs. A link that a cell prints names a notebook, as JupyterLab wants it; here it leads to the
notebook's page, and to one that is no page of the book it is a warning.
"""

import posixpath
import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains import Domain
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

import mini_attention

logger = logging.getLogger(__name__)

PACKAGE = "mini_attention"
GLOSSARY = "book/glossary"
API = "book/api"
OFFERED = "|".join([*mini_attention.__all__, "rules", "cost", "memory", "plots"])
LABEL = re.compile(r"(\d+[a-z]?) · ")  # the beginning of a chapter's title
EXERCISE = re.compile(r"(\D+ )(\d+)( · )")
TAG = re.compile(r"\\tag\{([^}]*)\}")

# What else a term is called, where that is more than an s at its end.
FORMS = {
    "attention map": ("attention map", "attention maps", "map", "maps"),
    "axis": ("axis", "axes"),
    "broadcasting": ("broadcasting", "broadcasts"),
    "causal mask": ("causal mask", "causal masks", "causal"),
    "concatenation": ("concatenation", "concatenate"),
    "entropy": ("entropy",),
    "packing": ("packing", "packed"),
    "permutation equivariance": ("permutation equivariance", "equivariance", "equivariant"),
    "query": ("query", "queries"),
    "recomputation": ("recomputation", "computed again"),
    "saturation": ("saturation", "saturated"),
    "sequence length": ("sequence length", "long sequence", "long sequences", "short sequence"),
    "softmax": ("softmax",),
    "window mask": ("window mask", "window masks", "window", "windows"),
}
# Everyday words: elsewhere than on the page that introduces the term they may mean anything.
EVERYDAY = {"block", "kernel", "pattern", "point", "rule", "view"}


@dataclass
class Term:
    """An entry of the glossary: where it stands, what it says, and which page introduces it."""

    address: str
    meaning: str
    introduced: str


@dataclass
class Numbers:
    """What is numbered on one page, each with the addresses of its targets in order."""

    label: str
    sections: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    exercises: dict[str, str] = field(default_factory=dict)
    equations: dict[str, str] = field(default_factory=dict)

    def targets(self) -> Iterator[tuple[tuple[str, str], str]]:
        yield ("chapter", self.label), ""
        named = {"exercise": self.exercises, "equation": self.equations}
        for kind, addresses in (("section", self.sections), ("figure", self.figures)):
            numbered = enumerate(addresses, start=1)
            named[kind] = {f"{self.label}.{number}": address for number, address in numbered}
        for kind, targets in named.items():
            for number, address in targets.items():
                yield (kind, number), address


@dataclass
class Name:
    """A name of the package: where the API reference has it, and what it says first."""

    address: str
    summary: str


class Book(Domain):
    """What is known of all pages once they are read."""

    name = "book"
    label = "Book"

    def __init__(self, env: BuildEnvironment) -> None:
        super().__init__(env)
        self.numbers: dict[str, Numbers] = self.data.setdefault("numbers", {})
        self.terms: dict[str, Term] = self.data.setdefault("terms", {})
        # Of each build: names, from each way in which the book writes one to its full form, and
        # the pages that use it, with whether their prose does.
        self.names: dict[str, Name] = {}
        self.ways: dict[str, str] = {}
        self.uses: dict[str, list[tuple[str, bool]]] = {}

    def clear_doc(self, docname: str) -> None:
        self.numbers.pop(docname, None)
        if docname == GLOSSARY:
            self.terms.clear()

    def targets(self) -> dict[tuple[str, str], tuple[str, str]]:
        """From ("figure", "3.2") to the page and the address on it."""
        return {
            key: (page, address)
            for page, numbers in self.numbers.items()
            for key, address in numbers.targets()
        }


def book(env: BuildEnvironment) -> Book:
    domain = env.get_domain("book")
    assert isinstance(domain, Book)
    return domain


# While pages are read: number what they hold, and learn the glossary


class Number(SphinxTransform):
    """Find what is numbered on a page, and give it an address that stays."""

    default_priority = 840  # before Sphinx notes titles and index entries

    def apply(self, **kwargs: Any) -> None:
        docname = self.env.docname
        if docname == GLOSSARY:
            book(self.env).terms.update(read_glossary(self.document))
        title = next(self.document.findall(nodes.title), None)
        label = LABEL.match(title.astext()) if title else None
        if title is None or label is None or title.parent.parent is not self.document:
            return
        numbers = book(self.env).numbers[docname] = Numbers(label[1])
        sections = [node for node in title.parent.children if isinstance(node, nodes.section)]
        # A chapter ends with its summary and its exercises, which need no number of their own.
        numbers.sections = [section["ids"][0] for section in sections[:-2]]
        numbers.figures = [
            figure["ids"][0] for figure in self.document.findall(nodes.figure) if figure["ids"]
        ]
        if sections:
            number_exercises(sections[-1], numbers)
        number_equations(self.document, numbers)


def number_exercises(section: nodes.section, numbers: Numbers) -> None:
    for exercise in section.children:
        if not isinstance(exercise, nodes.section):
            continue
        text = next(exercise.findall(nodes.Text), None)
        found = EXERCISE.match(text) if text else None
        if text is None or found is None:
            continue
        number = f"{numbers.label}.{found[2]}"
        text.parent.replace(text, nodes.Text(f"{found[1]}{number}{found[3]}{text[found.end() :]}"))
        address = numbers.exercises[number] = f"exercise-{found[2]}"
        # In front: links copied from the page then have no minutes and no level in them.
        exercise["ids"].insert(0, address)
        words = f"{found[1]}{number}".lower()
        exercise.insert(1, addnodes.index(entries=[findable(words, address)]))
        for cell in exercise.findall(nodes.container):
            if "tag_solution" in cell["classes"]:
                cell["ids"].append(f"solution-{found[2]}")
                break


def number_equations(document: nodes.document, numbers: Numbers) -> None:
    for formula in document.findall(nodes.math_block):
        found = TAG.search(formula.astext())
        if found is None:
            continue
        expected = f"{numbers.label}.{len(numbers.equations) + 1}"
        if found[1] != expected:
            logger.warning("equation %s should be number %s", found[1], expected, location=formula)
            continue
        address = f"equation-{found[1].replace('.', '-')}"
        numbers.equations[found[1]] = address
        formula["ids"].append(address)
        # Sphinx would put lines of a formula into a "split", which may hold no tag.
        formula["nowrap"] = True
        text = f"\\[{formula.astext()}\\]"
        formula.children = [nodes.Text(text)]


def findable(words: str, address: str) -> tuple[str, str, str, str, None]:
    """An entry of the index, which search puts first."""
    return ("single", words, address, "main", None)


def read_glossary(document: nodes.document) -> dict[str, Term]:
    """The entries; each of an entry's names and symbols becomes a word that search finds first."""
    terms = {}
    for item in document.findall(nodes.definition_list_item):
        term, definition = item.children[0], item.children[-1]
        assert isinstance(term, nodes.term)
        assert isinstance(definition, nodes.definition)
        meaning, facts = definition.children[0], definition.children[-1]
        link = next(facts.findall(addnodes.pending_xref), None)
        names = term.astext().split(" · ")
        if len(names) != 2 or link is None:
            logger.warning(
                "an entry of the glossary needs its English and its Chinese name, and at the end "
                "a link to the section that introduces it",
                location=term,
            )
            continue
        address = term["ids"][0]
        written = [code.astext() for code in facts.findall(nodes.literal)]
        # What the package offers is found in the API reference.
        symbols = [code for code in written if not re.match(rf"({OFFERED})\b", code)]
        words = [names[0].partition(" (")[0], names[1], *symbols]
        for index in term.findall(addnodes.index):
            index["entries"] = [findable(word, address) for word in dict.fromkeys(words)]
        terms[names[0]] = Term(address, meaning.astext(), link["reftarget"])
    return terms


# When all pages are read


def give_numbers(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Put our numbers where Sphinx keeps its own, which count through the whole book."""
    env.toc_fignumbers = {}
    env.toc_secnumbers = {}
    for page, numbers in book(env).numbers.items():
        figures = {
            address: (numbers.label, number)
            for number, address in enumerate(numbers.figures, start=1)
        }
        sections = {
            f"#{address}": (numbers.label, number)
            for number, address in enumerate(numbers.sections, start=1)
        }
        env.toc_fignumbers[page] = {"figure": figures}  # type: ignore[dict-item]
        env.toc_secnumbers[page] = sections  # type: ignore[assignment]
        for entry in env.tocs[page].findall(nodes.reference):
            if number := sections.get(entry["anchorname"]):
                entry["secnumber"] = number
    return []


def note_names(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """The names of the API reference, and which pages use them in the order of the contents."""
    data = book(env)
    data.names, data.ways, data.uses = {}, {}, {}
    if API not in env.found_docs:
        return []
    summaries = {
        entry.children[0]["ids"][0]: entry.children[-1].children[0].astext()
        for entry in env.get_doctree(API).findall(addnodes.desc)
        if entry.children[0]["ids"] and entry.children[-1].children
    }
    short: dict[str, list[str]] = {}
    for full, entry in env.get_domain("py").data["objects"].items():
        if entry.docname != API or not full.startswith(PACKAGE):
            continue
        data.names[full] = Name(entry.node_id, summaries.get(full, ""))
        data.ways[full] = data.ways[full.removeprefix(f"{PACKAGE}.")] = full
        last = full.rpartition(".")[2]
        # A `block` may be any block, but only one thing is called `peak_bytes`.
        if entry.objtype != "method" and re.search(r"[A-Z_]", last):
            short.setdefault(last, []).append(full)
    data.ways = {last: full[0] for last, full in short.items() if len(full) == 1} | data.ways
    for page in reading_order(env, env.config.root_doc):
        if page in (API, GLOSSARY, env.config.root_doc):
            continue
        doctree = env.get_doctree(page)
        said = set(first_names(doctree, data.ways))
        for full in sorted(said | imported(doctree, data.names)):
            data.uses.setdefault(full, []).append((page, full in said))
    return []


def reading_order(env: BuildEnvironment, page: str) -> Iterator[str]:
    yield page
    for child in env.toctree_includes.get(page, []):
        yield from reading_order(env, child)


def first_names(doctree: nodes.document, ways: dict[str, str]) -> dict[str, nodes.literal]:
    """The first code in a sentence for each name of the package."""
    found: dict[str, nodes.literal] = {}
    for node in doctree.findall(nodes.literal):
        name = ways.get(re.sub(r"\(.*\)$", "", node.astext()))
        if name and name not in found and in_prose(node) and not in_table(node):
            found[name] = node
    return found


def imported(doctree: nodes.document, names: Container[str]) -> set[str]:
    """The names of the package that the code of a page imports."""
    code = "\n".join(node.astext() for node in doctree.findall(nodes.literal_block))
    pattern = rf"^from ({PACKAGE}[\w.]*) import (?:\(([^)]*)\)|(.*))$"
    return {
        f"{module}.{name}"
        for module, inside, line in re.findall(pattern, code, re.MULTILINE)
        for name in re.findall(r"\w+", inside or line)
        if f"{module}.{name}" in names
    }


# While pages are written


OUTSIDE = (
    nodes.title,
    nodes.caption,
    nodes.reference,
    nodes.literal_block,
    nodes.math,
    nodes.math_block,
    nodes.raw,
    nodes.term,
    nodes.footnote,
    nodes.citation,
    addnodes.pending_xref,
    addnodes.index,
    addnodes.desc_signature,
)


def ancestors(node: nodes.Node) -> Iterator[nodes.Element]:
    parent = node.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def in_prose(node: nodes.Node) -> bool:
    """Whether a node is part of a sentence, and no link, heading, caption or output."""
    above = list(ancestors(node))
    return any(isinstance(parent, nodes.paragraph) for parent in above) and not any(
        isinstance(parent, OUTSIDE) or "cell" in parent.get("classes", []) for parent in above
    )


def in_table(node: nodes.Node) -> bool:
    """Tables compare with other libraries, and are restless enough without links."""
    return any(isinstance(parent, nodes.table) for parent in ancestors(node))


def sentences(doctree: nodes.document) -> Iterator[nodes.Text]:
    """The text of a page's sentences, in order."""
    for node in doctree.findall(nodes.Text):
        if in_prose(node) and not isinstance(node.parent, nodes.literal):
            yield node


def folded(doctree: nodes.document) -> set[nodes.Node]:
    """What stands in answers that a reader unfolds."""
    inside, depth = set(), 0
    for node in doctree.findall():
        if isinstance(node, nodes.raw):
            text = node.astext()
            depth += len(re.findall(r"<details\b", text)) - text.count("</details>")
        elif depth:
            inside.add(node)
    return inside


@dataclass(frozen=True)
class Link:
    """A stretch of a text that becomes a link."""

    begin: int
    end: int
    node: nodes.reference


def put(text: nodes.Text, links: list[Link]) -> None:
    pieces: list[nodes.Node] = []
    at = 0
    for link in sorted(links, key=lambda link: link.begin):
        if link.begin < at:  # a term within a reference, say
            continue
        pieces += [nodes.Text(text[at : link.begin]), link.node]
        at = link.end
    pieces.append(nodes.Text(text[at:]))
    text.parent.replace(text, [piece for piece in pieces if piece.astext()])


ONE = r"\d+[a-z]?(?:\.\d+)?"
KIND = r"\b(figure|equation|section|exercise|chapter)"
# A list after a plural only: "of chapter 1, 12, 3 and 25 sixteenths" names one chapter.
REFERENCE = re.compile(
    rf"{KIND}(?:\s({ONE})|s\s({ONE}(?:(?:, | and | or | to |, and ){ONE}\b)*))(?![\w.]*\d)",
    re.IGNORECASE,
)


def references(text: str, label: str | None) -> Iterator[tuple[int, int, tuple[str, str]]]:
    """Where a text refers to something numbered: begin, end, and ("figure", "3.2")."""
    for found in REFERENCE.finditer(text):
        kind, numbers = found[1].lower(), found.span(2) if found[2] else found.span(3)
        begin = found.start()
        for number in re.finditer(ONE, text[slice(*numbers)]):
            end = numbers[0] + number.end()
            key = number[0]
            if kind == "exercise" and label and "." not in key:
                key = f"{label}.{key}"
            yield begin if number.start() == 0 else numbers[0] + number.start(), end, (kind, key)


class OutputLinks(SphinxPostTransform):
    """Lead the links in what cells print to pages: MyST does so for those in Markdown cells."""

    default_priority = 490  # before numbers and terms look at where a link leads
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        page = self.env.docname
        for link in self.document.findall(nodes.reference):
            path, mark, anchor = link.get("refuri", "").partition("#")
            if not path.endswith(".ipynb") or "://" in path:
                continue
            to = posixpath.normpath(posixpath.join(posixpath.dirname(page), path[: -len(".ipynb")]))
            if to in self.env.found_docs:
                link["refuri"] = self.app.builder.get_relative_uri(page, to) + mark + anchor
            else:
                logger.warning("there is no page for %s", path, location=link.parent)


class Links(SphinxPostTransform):
    """Turn references, terms and names into links."""

    default_priority = 500  # when all other links are made
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        self.book = book(self.env)
        self.page = self.env.docname
        if self.page == API:
            self.link_entries_to_chapters()
            return
        self.link_names()
        links: dict[nodes.Text, list[Link]] = {}
        if self.page != GLOSSARY:  # which names a chapter beside each link to it
            self.link_numbers(links)
        if self.page in self.book.numbers or self.env.doc2path(self.page).endswith(".ipynb"):
            self.link_terms(links)
        for text, found in links.items():
            put(text, found)

    def reference(
        self, page: str, address: str, content: str | nodes.Node, kind: str, title: str = ""
    ) -> nodes.reference:
        uri = "" if page == self.page else self.app.builder.get_relative_uri(self.page, page)
        if address:
            uri = f"{uri}#{address}"
        inside = nodes.Text(content) if isinstance(content, str) else content
        node = nodes.reference("", "", inside, internal=True, refuri=uri, classes=[kind])
        if title:
            node["reftitle"] = " ".join(title.split())
        return node

    def link_numbers(self, links: dict[nodes.Text, list[Link]]) -> None:
        targets = self.book.targets()
        own = self.book.numbers.get(self.page)
        label = own.label if own else None
        linked = {("chapter", label)}
        for node in list(self.document.findall()):
            if isinstance(node, nodes.reference):
                linked |= self.aim(node, targets, label)
            if not isinstance(node, nodes.Text) or not in_prose(node):
                continue
            if isinstance(node.parent, nodes.literal):
                continue
            for begin, end, key in references(node, label):
                target = targets.get(key)
                if target is None:
                    logger.warning("there is no %s %s", *key, location=node.parent)
                elif key[0] != "chapter" or key not in linked:
                    linked.add(key)
                    link = self.reference(*target, node[begin:end], "number")
                    links.setdefault(node, []).append(Link(begin, end, link))

    def aim(
        self,
        link: nodes.reference,
        targets: dict[tuple[str, str], tuple[str, str]],
        label: str | None,
    ) -> set[tuple[str, str | None]]:
        """Send "[figure 1.2](chapter 1)", which leads to a page, to the figure itself.

        Returns the chapter that the link leads to.
        """
        for begin, end, key in references(link.astext(), label):
            if key[0] != "chapter" and (begin, end) == (0, len(link.astext())):
                if key not in targets:
                    logger.warning("there is no %s %s", *key, location=link.parent)
                    continue
                link["refuri"] = self.reference(*targets[key], "", "number")["refuri"]
        page = link.get("refuri", "").partition("#")[0]
        return {
            ("chapter", numbers.label)
            for name, numbers in self.book.numbers.items()
            if page == self.app.builder.get_relative_uri(self.page, name)
        }

    def link_terms(self, links: dict[nodes.Text, list[Link]]) -> None:
        waiting = {
            name: term
            for name, term in self.book.terms.items()
            if "(" not in name and (name not in EVERYDAY or term.introduced == self.page)
        }
        forms = {form.lower(): name for name in waiting for form in forms_of(name)}
        pattern = term_pattern(forms)
        texts = self.texts_for_terms()
        # What a page defines in bold is meant in that sense from there on: before, a "key" may
        # be one of a dictionary.
        for text in texts:
            name = forms.get(text.lower(), "")
            defined = isinstance(text.parent, nodes.strong) and name in waiting
            if defined and waiting[name].introduced == self.page:
                self.link_term(name, waiting.pop(name), text, (0, len(text)), links)
        for text in texts:
            for found in pattern.finditer(text):
                name = forms[found[0].lower()]
                if name in waiting:
                    self.link_term(name, waiting.pop(name), text, found.span(), links)

    def link_term(
        self,
        name: str,
        term: Term,
        text: nodes.Text,
        span: tuple[int, int],
        links: dict[nodes.Text, list[Link]],
    ) -> None:
        meaning = f"{name}: {term.meaning}"
        link = self.reference(GLOSSARY, term.address, text[slice(*span)], "term", meaning)
        links.setdefault(text, []).append(Link(*span, link))

    def texts_for_terms(self) -> list[nodes.Text]:
        """A page's opening says what will be explained, and an answer is still to be thought of."""
        hidden = folded(self.document)
        return [
            text
            for text in sentences(self.document)
            if text not in hidden
            and sum(isinstance(parent, nodes.section) for parent in ancestors(text)) > 1
            and not in_table(text)
        ]

    def link_names(self) -> None:
        for full, node in first_names(self.document, self.book.ways).items():
            name = self.book.names[full]
            title = f"{full}: {name.summary}" if name.summary else full
            link = self.reference(API, name.address, node.deepcopy(), "name", title)
            link["ids"].append(f"use-{full}")
            node.parent.replace(node, link)

    def link_entries_to_chapters(self) -> None:
        for entry in self.document.findall(addnodes.desc):
            signature, content = entry.children[0], entry.children[-1]
            assert isinstance(signature, addnodes.desc_signature)
            assert isinstance(content, addnodes.desc_content)
            uses = self.book.uses.get(next(iter(signature["ids"]), ""), [])
            if not uses:
                continue
            line = nodes.paragraph("", "In the book: ", classes=["uses"])
            for page, said in uses:
                numbers = self.book.numbers.get(page)
                title = self.env.titles[page].astext()
                address = f"use-{signature['ids'][0]}" if said else ""
                shown = f"chapter {numbers.label}" if numbers else title
                line += [self.reference(page, address, shown, "use", title), nodes.Text(", ")]
            line.children[-1] = nodes.Text(".")
            content += line


def forms_of(term: str) -> tuple[str, ...]:
    return FORMS.get(term, (term, f"{term}s"))


def term_pattern(forms: Iterable[str]) -> re.Pattern[str]:
    longest_first = sorted(forms, key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w-])", re.I)


# Names in cells

IMPORT = re.compile(
    rf'<span class="nn">({PACKAGE}[\w.]*)</span>(?:<span class="w"> </span>| )'
    r'<span class="kn">import</span> *(?:<span class="p">\(</span>(?s:.*?)\)|[^\n]*)'
)
SPAN = re.compile(r'<span class="n">(\w+)</span>')


def link_imports(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object
) -> None:
    """Link what a cell imports from the package. Cells are highlighted text: there are no nodes."""
    if app.builder.format != "html" or page == API or "body" not in context:
        return
    names = book(app.env).names
    uri = app.builder.get_relative_uri(page, API)

    def link(module: str, span: re.Match[str]) -> str:
        name = names.get(f"{module}.{span[1]}")
        if name is None:
            return span[0]
        return f'<a class="name" href="{uri}#{name.address}">{span[0]}</a>'

    context["body"] = IMPORT.sub(
        lambda line: SPAN.sub(lambda span: link(line[1], span), line[0]), context["body"]
    )


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_domain(Book)
    app.add_transform(Number)
    app.add_post_transform(OutputLinks)
    app.add_post_transform(Links)
    app.add_css_file("links.css")
    app.connect("env-get-updated", give_numbers, priority=900)  # Sphinx has counted by then
    app.connect("env-updated", note_names)
    app.connect("html-page-context", link_imports)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True}
