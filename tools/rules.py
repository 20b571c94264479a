"""The rules that every notebook of the book keeps.

nbval compares stored outputs with new ones, and passes without a look whatever it can't compare:
a cell that was never run, the pixels of a figure, everything that is skipped. These rules close
those holes, and hold the form that lets one file read well in the book, in JupyterLab and on Colab.

A rule is a function of a `Page` that yields one line for each problem; `RULES` lists them.
"""

import ast
import base64
import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path

from nbformat import NotebookNode, v4
from nbformat.validator import iter_validate
from PIL import Image
from pybtex.database import parse_file

from course import sources

# The form in which notebooks are stored

NOTEBOOK_METADATA = {
    "kernelspec": {
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "name": "python3",
    },
    "language_info": {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
    },
}
# How a solution is folded: in JupyterLab, and on Colab. In the book its tag hide-cell does it.
FOLDED = {"jupyter": {"source_hidden": True, "outputs_hidden": True}, "cellView": "form"}
TAGS = {
    "solution",
    "hide-cell",
    "hide-input",
    "raises-exception",
    "nbval-skip",
    "skip-execution",
    "nbval-ignore-output",
    "remove-output",
}
# nbval and the book each have a tag of their own for the same wish: one without the other
# would leave a cell that one of the two still runs or shows.
PAIRS = [("nbval-skip", "skip-execution"), ("nbval-ignore-output", "remove-output")]
MIME_TYPES = {"text/plain", "text/markdown", "text/latex", "image/png"}

WIDTH = 79  # characters of code or output: more needs scrolling sideways
IMPORTS = 5  # in the first code cell
# A table in Markdown, as `plots.show` stores it below a figure.
TABLE = re.compile(r"^\|.*\|\n\|( -{2,}:? \|)+$", re.MULTILINE)
POINTS = 10  # the smallest letters of mini_attention/book.mplstyle
PIXELS = 96  # an inch, on a wide page
PHONE = 327  # pixels: what a page 375 wide leaves to a figure
LETTERS = 9  # pixels, on a phone
BARE_IDEA = 15  # lines of the last code cell of a chapter
EXERCISES = (3, 5)
QUESTIONS, SIBLING_QUESTIONS = 3, 2  # at least so many predictions in the main text


@dataclass(frozen=True)
class Size:
    words: int
    cells: int
    figures: int

    @property
    def minutes(self) -> float:
        """100 words a minute is reading to understand; a cell is run and looked at."""
        return self.words / 100 + 0.6 * self.cells + self.figures


CHAPTER_BUDGET = Size(words=2500, cells=25, figures=4)
SIBLING_BUDGET = Size(words=1500, cells=15, figures=3)
ROOM_BUDGET = Size(words=1500, cells=30, figures=3)  # of the museum, with a cell for each exhibit
MAX_MINUTES = 45
ASSIGNMENT_BUDGET = Size(words=2500, cells=40, figures=3)
ASSIGNMENT_MINUTES = (60, 120)  # of work, as its questions tell


class Page:
    """One notebook with what the rules ask about it."""

    def __init__(self, path: Path, text: str | None = None) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8") if text is None else text
        self.notebook = parse(self.text)
        self.cells: list[NotebookNode] = self.notebook.cells

    @cached_property
    def code(self) -> list[tuple[str, NotebookNode]]:
        return [(where, cell) for where, cell in self.named if cell.cell_type == "code"]

    @cached_property
    def markdown(self) -> list[tuple[str, NotebookNode]]:
        return [(where, cell) for where, cell in self.named if cell.cell_type == "markdown"]

    @cached_property
    def named(self) -> list[tuple[str, NotebookNode]]:
        return [
            (f"cell {number} ({cell.get('id', 'no id')})", cell)
            for number, cell in enumerate(self.cells, start=1)
        ]

    @property
    def is_chapter(self) -> bool:
        return re.match(r"\d\d_", self.path.name) is not None

    @property
    def is_sibling(self) -> bool:
        return re.match(r"\d\d[a-z]_", self.path.name) is not None

    @property
    def is_room(self) -> bool:
        return self.path.name.startswith("museum_")

    @property
    def is_assignment(self) -> bool:
        return self.path.parent.name == sources.SOURCES.name


# Small helpers


def parse(text: str) -> NotebookNode:
    """The notebook as it is: nbformat's own reader mends ids and says nothing."""
    major = json.loads(text).get("nbformat")
    if major != 4:
        raise ValueError(f"is in nbformat {major}: open it in JupyterLab and save it")
    notebook: NotebookNode = v4.reads(text)
    return notebook


def serialise(notebook: NotebookNode) -> str:
    return str(v4.writes(notebook)) + "\n"


def indent(text: str) -> str:
    return textwrap.indent(text.rstrip(), "    ")


def tags(cell: NotebookNode) -> list[str]:
    return list(cell.metadata.get("tags", []))


def slug(heading: str) -> str:
    """The anchor that the book gives a heading (GitHub's rule)."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def output_texts(cell: NotebookNode) -> Iterator[str]:
    """Everything in the outputs that is text."""
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            yield output.text
        elif output.output_type == "error":
            yield "\n".join([output.ename, output.evalue, *output.traceback])
        else:
            # A picture is text too, in base64: no rule reads it, and a pattern would take minutes.
            yield from (
                value for mime, value in output.data.items() if not mime.startswith("image/")
            )


def images(cell: NotebookNode) -> list[str]:
    return [
        output.data["image/png"]
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]


MACHINE_PATH = re.compile(
    r"(?<![\w.:/\\-])(?:/(?:home|Users|root|tmp|work|opt|usr|var|mnt|srv|private|content)/"
    r"|[A-Za-z]:\\)[^\s'\")]*"
    r"|site-packages[/\\]\S*|ipykernel_\d+\S*"
)


def machine_path(text: str) -> str | None:
    """The first path in the text that exists on one machine only."""
    found = MACHINE_PATH.search(text)
    return found[0] if found else None


def tree(cell: NotebookNode) -> ast.Module | None:
    """The cell as Python, its magics blanked; None where it is wrong on purpose."""
    source = re.sub(r"^(\s*)[%!].*$", r"\1pass", cell.source, flags=re.MULTILINE)
    try:
        return ast.parse(source)
    except SyntaxError:
        return None


def has_assert(cell: NotebookNode) -> bool:
    return re.search(r"\bassert", cell.source) is not None


def prose(text: str) -> str:
    """Markdown without code, formulas, links' targets and HTML tags."""
    text = re.sub(r"^( *)(```|~~~).*?^\1\2 *$", " ", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", " code ", text)
    text = re.sub(r"\$\$.*?\$\$", " formula ", text, flags=re.DOTALL)
    text = re.sub(r"\$[^$\n]+\$", " formula ", text)
    text = re.sub(r"\]\([^)]*\)", "] ", text)
    return re.sub(r"</?[a-z][^>]*>", " ", text)


def words(text: str) -> int:
    return len(re.findall(r"[^\W_][\w'’.,-]*", prose(text)))


def before_exercises(cells: list[NotebookNode]) -> list[NotebookNode]:
    for index, cell in enumerate(cells):
        if cell.cell_type == "markdown" and re.search(r"^## Exercises\b", cell.source, re.M):
            return cells[:index]
    return cells


def main_line(notebook: NotebookNode) -> Size:
    """What a reader meets on the way to the exercises."""
    cells = before_exercises(notebook.cells)
    code = [c for c in cells if c.cell_type == "code" and "solution" not in tags(c)]
    return Size(
        words=sum(words(c.source) for c in cells if c.cell_type == "markdown"),
        cells=len(code),
        figures=sum(len(images(c)) for c in code),
    )


# Rules: the file


def stored_form(page: Page) -> Iterator[str]:
    if page.notebook.get("nbformat_minor") != 5:
        yield "is not in the format nbformat 4.5"
        return
    for error in iter_validate(page.notebook, version=4, version_minor=5):
        yield f"is no valid notebook: {error.message}"
    if page.notebook.metadata != NOTEBOOK_METADATA:
        yield "has metadata other than the kernelspec python3 (no version, no editor's notes)"
    if page.text != serialise(page.notebook):
        yield "is not stored as `python -m tools.notebooks refresh` stores it"


def cell_ids(page: Page) -> Iterator[str]:
    names = [cell.get("id", "") for _, cell in page.named]
    for (where, _), name in zip(page.named, names, strict=True):
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", name):
            yield f"{where} has no id in lower case"
        if names.count(name) > 1:
            yield f"{where} has an id that another cell has"
    if random := [name for name in names if re.fullmatch(r"[0-9a-f]{8}([0-9a-f-]{24,28})?", name)]:
        yield f"has random cell ids, the first is {random[0]}: refresh names them"


def cell_metadata(page: Page) -> Iterator[str]:
    for where, cell in page.named:
        solution = "solution" in tags(cell)
        allowed = {"tags", "mystnb"} if cell.cell_type == "code" else {"tags"}
        if page.is_assignment:
            allowed.add("nbgrader")
        extra = set(cell.metadata) - allowed - (set(FOLDED) if solution else set())
        if extra:
            yield f"{where} has metadata beside tags and captions: {', '.join(sorted(extra))}"
        if unknown := set(tags(cell)) - TAGS:
            yield f"{where} has unknown tags: {', '.join(sorted(unknown))}"
        if cell.cell_type == "raw":
            yield f"{where} is a raw cell"


# Rules: code cells


def run_in_order(page: Page) -> Iterator[str]:
    for where, cell in page.code:
        if not cell.source.strip():
            yield f"{where} is empty"
        for output in cell.outputs:
            if output.get("execution_count", cell.execution_count) != cell.execution_count:
                yield f"{where} has an output from another run"
    run = [(where, cell) for where, cell in page.code if "skip-execution" not in tags(cell)]
    for expected, (where, cell) in enumerate(run, start=1):
        if cell.execution_count != expected:
            yield f"{where} has execution count {cell.execution_count}, not {expected}: refresh"
            return  # and so have all that follow


def errors_on_purpose(page: Page) -> Iterator[str]:
    minimal = False
    for where, cell in page.code:
        minimal = minimal or re.search(r"^%xmode Minimal$", cell.source, re.M) is not None
        errors = [output for output in cell.outputs if output.output_type == "error"]
        raised = bool(errors)
        # A frame outside the cell names its file, and the published page shows the builder's.
        deep = any(frame.startswith("File ") for error in errors for frame in error.traceback)
        if raised and "raises-exception" not in tags(cell):
            yield f"{where} stores an error but has no tag raises-exception"
        if "raises-exception" in tags(cell) and not raised:
            yield f"{where} has the tag raises-exception and raises nothing"
        if deep and not minimal:
            yield f"{where} raises before `%xmode Minimal`: its traceback shows this machine"


def skipped_with_reason(page: Page) -> Iterator[str]:
    for where, cell in page.code:
        for ours, other in PAIRS:
            if (ours in tags(cell)) != (other in tags(cell)):
                yield f"{where} needs both of the tags {ours} and {other}, or neither"
            if ours in tags(cell) and not re.match(r"# not (run|compared): \w+", cell.source):
                yield f"{where} is exempt: begin it with `# not run: why` or `# not compared: why`"


def clean_outputs(page: Page) -> Iterator[str]:
    for where, cell in page.code:
        for output in cell.outputs:
            if output.output_type == "stream" and output.name == "stderr":
                yield f"{where} stores output on stderr"
            if forbidden := set(output.get("data", {})) - MIME_TYPES:
                yield f"{where} stores {', '.join(sorted(forbidden))}"
        for text in output_texts(cell):
            if path := machine_path(text):
                yield f"{where} stores a path of one machine: {path}"
            if found := re.search(r"\bat 0x[0-9a-fA-F]{4,}", text):
                yield f"{where} stores a memory address: {found[0]}"
            if found := re.search(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d|\b\d+(\.\d+)? ?it/s\b", text):
                yield f"{where} stores a time: {found[0]}"
            if "\x1b[" in text:
                yield f"{where} stores colour codes of a terminal"


def line_widths(page: Page) -> Iterator[str]:
    for where, cell in page.code:
        if widest := too_wide(cell.source):
            yield f"{where} has a line of {widest} characters of code (at most {WIDTH})"
        for output in cell.outputs:
            data = output.get("data", {})
            shown_text = output.get("text") or output.get("evalue", "")
            if len(data) == 1:  # beside a picture or Markdown, text/plain is never displayed
                shown_text = data.get("text/plain", "")
            if widest := too_wide(shown_text):
                yield f"{where} prints a line of {widest} characters (at most {WIDTH})"


def too_wide(text: str) -> int:
    widest = max(map(len, text.split("\n")))
    return widest if widest > WIDTH else 0


def source_habits(page: Page) -> Iterator[str]:
    for where, cell in page.code:
        if re.search(r";\s*(#.*)?$", cell.source, re.MULTILINE):
            yield f"{where} has a line that ends in `;`, which nbval can't compare"
        for magic in re.findall(r"^\s*([%!].*)$", cell.source, re.MULTILINE):
            if magic.strip() != "%xmode Minimal":
                yield f"{where} uses {magic.strip()}"
        if re.search(r"\b(filterwarnings|simplefilter|catch_warnings)\b", cell.source):
            yield f"{where} silences warnings"
        if path := machine_path(cell.source):
            yield f"{where} names a path of one machine: {path}"
        module = tree(cell)
        if module is None and "raises-exception" not in tags(cell):
            yield f"{where} is no Python"
        if module is not None and module.body and is_seed(module.body[-1]):
            yield f"{where} ends in manual_seed, whose value shows a memory address"


def is_seed(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and "manual_seed(" in ast.unparse(statement)


def few_imports(page: Page) -> Iterator[str]:
    for where, cell in page.code[:1]:
        module = tree(cell)
        imports = [
            node
            for node in (module.body if module else [])
            if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        if len(imports) > IMPORTS:
            yield f"{where} has {len(imports)} imports (at most {IMPORTS})"
    sources = [cell.source for _, cell in page.code]
    if page.is_chapter and not any(
        re.search(r"^\s*(from|import) mini_attention", source, re.M) for source in sources
    ):
        yield "imports nothing from mini_attention"


# Rules: figures


def figures(page: Page) -> Iterator[str]:
    names: set[str] = set()
    for where, cell in page.code:
        mystnb = cell.metadata.get("mystnb", {})
        alt = mystnb.get("image", {}).get("alt", "")
        caption = mystnb.get("figure", {}).get("caption", "")
        name = mystnb.get("figure", {}).get("name", "")
        if mystnb and not images(cell):
            yield f"{where} has a caption but no figure"
        if not images(cell):
            continue
        if len(alt.split()) < 8 or re.match(r"(an? )?(figure|image|picture)\b", alt, re.I):
            yield f"{where} needs an alt text that says what the figure shows"
        if len(caption.split()) < 5 or caption == alt:
            yield f"{where} needs a caption of its own"
        if not re.fullmatch(r"fig-[a-z0-9-]+", name) or name in names:
            yield f"{where} needs a name of its own, fig-..."
        names.add(name)
        if len(images(cell)) > 1:
            yield f"{where} shows {len(images(cell))} figures under one caption"
        if not all(map(is_opaque, images(cell))):
            yield f"{where} has a transparent figure: unreadable in the dark theme"
        if (small := min(map(letters_on_a_phone, images(cell)))) < LETTERS:
            yield (
                f"{where} has a figure so wide that a phone shows its letters {small:.1f} pixels "
                f"high (at least {LETTERS}): draw it narrower"
            )
        if not any(TABLE.search(text) for text in output_texts(cell)):
            yield f"{where} shows no table of the figure's numbers: end it with `plots.show()`"
        if not any(has_assert(near) for near in neighbours(page, cell)):
            yield f"{where} shows a figure whose numbers no cell beside it asserts"


def picture_of(png: str) -> Image.Image:
    return Image.open(BytesIO(base64.b64decode(png)))


def is_opaque(png: str) -> bool:
    lowest, _ = picture_of(png).convert("RGBA").getchannel("A").getextrema()
    return lowest == 255


def letters_on_a_phone(png: str) -> float:
    """The height in pixels of the smallest letters where a phone fits the figure into its page."""
    picture = picture_of(png)
    inches = picture.width / float(picture.info.get("dpi", (PIXELS, PIXELS))[0])
    return POINTS / 72 * min(PHONE / inches, PIXELS)


# What belongs to the style: arguments of matplotlib, and how a figure cell may set them.
SET_BY_STYLE = re.compile(
    "alpha|dpi|fontfamily|fontsize|fontweight|linestyles?|linewidths?|ls|lw"
    "|markersize|markeredgewidth|ms"
)
COLOUR = re.compile("c|cmap|colou?rs?|.*(edge|face)colou?rs?")
NAMED = re.compile("C[0-3]|white|none")
LETTER_OF_A_COLOUR = re.compile(r"[-.:,ov^<>1-4sp*hH+xXDd|]*[bgrcmykw][-.:,ov^<>1-4sp*hH+xXDd|]*")
DRAWS = re.compile(r"\bplt\.(figure|subplots?|axes|gca)\(")


def figure_style(page: Page) -> Iterator[str]:
    """Every figure has the style of mini_attention/book.mplstyle, and no colour of its own."""
    styled = False
    for where, cell in page.code:
        module = tree(cell)
        if module is None:
            continue
        styled = styled or "plots.style()" in cell.source
        if DRAWS.search(cell.source) and not styled:
            yield f"{where} draws before `plots.style()`"
        if not images(cell):
            continue
        if not module.body or not ast.unparse(module.body[-1]).startswith("plots.show("):
            yield f"{where} needs to end with `plots.show()`, which shows the numbers, too"
        for node in ast.walk(module):
            if isinstance(node, ast.Call):
                yield from (f"{where} sets {what}: that is the style's" for what in by_hand(node))
            if isinstance(node, ast.Constant) and is_code_of_a_colour(node.value):
                yield f"{where} names the colour {node.value!r}: take one of `plots`"


def is_code_of_a_colour(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("#[0-9a-fA-F]{3,8}", value) is not None


def by_hand(call: ast.Call) -> Iterator[str]:
    """The arguments of a call that give a figure a look of its own."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    for keyword in call.keywords:
        argument, value = keyword.arg or "", keyword.value
        told = value.value if isinstance(value, ast.Constant) else None
        if SET_BY_STYLE.fullmatch(argument):
            yield f"{argument}={ast.unparse(value)}"
        if COLOUR.fullmatch(argument) and told is not None and not NAMED.fullmatch(str(told)):
            yield f"{argument}={ast.unparse(value)}"
    if name in {"plot", "loglog", "semilogx", "semilogy", "errorbar"}:
        for value in call.args:
            text = value.value if isinstance(value, ast.Constant) else None
            if isinstance(text, str) and LETTER_OF_A_COLOUR.fullmatch(text):
                yield f"the colour in {text!r}"


def neighbours(page: Page, cell: NotebookNode) -> list[NotebookNode]:
    """The cell with the two code cells before and after it."""
    cells = [other for _, other in page.code if other is cell or "solution" not in tags(other)]
    index = next(index for index, other in enumerate(cells) if other is cell)
    return cells[max(index - 2, 0) : index + 3]


# Rules: prose

DIRECTIVES = {
    r"^\s*(```+|~~~+|:::+) *\{": "a MyST directive",
    r"\{[a-zA-Z][\w:.+-]*\}`": "a MyST role",
    r"^\([\w-]+\)=\s*$": "a MyST label",
    r"^\+\+\+": "a MyST block break",
    r"^% ": "a MyST comment",
    r"^\s*:::": "a MyST fence",
}


def plain_markdown(page: Page) -> Iterator[str]:
    for where, cell in page.markdown:
        text = re.sub(r"(?<![`}])`[^`\n]+`(?!`)", "", cell.source)
        text = re.sub(r"\$\$.*?\$\$|\$[^$\n]+\$", "", text, flags=re.DOTALL)
        for pattern, what in DIRECTIVES.items():
            if found := re.search(pattern, text, re.MULTILINE):
                yield f"{where} has {what}, which JupyterLab shows raw: {found[0].strip()}"
        if re.search(r"!\[", text) or "<img" in text:
            yield f"{where} has a picture that no code of the page made"
        if re.search(r"[\U0001F000-\U0001FAFF\u2600-\u27BF]", text):
            yield f"{where} has an emoji"
        for word in re.findall(r"\b(simply|just|obviously)\b", prose(cell.source), re.IGNORECASE):
            yield f"{where} says “{word}”: what is easy is for the reader to say"


def formulas(page: Page) -> Iterator[str]:
    for where, cell in page.markdown:
        if cell.source.count("$$") % 2:
            yield f"{where} has an unclosed $$"
        for found in re.finditer(r"\$\$(.*?)\$\$", cell.source, re.DOTALL):
            before = cell.source[: found.start()].rstrip(" ")
            after = cell.source[found.end() :].lstrip(" ")
            if (before and not before.endswith("\n\n")) or (after and not after.startswith("\n\n")):
                yield f"{where} needs a blank line before and after the formula {found[0][:30]}"


def folded_answers(page: Page) -> Iterator[str]:
    for where, cell in page.markdown:
        opened = len(re.findall(r"<details\b", cell.source))
        closed = cell.source.count("</details>")
        good = len(
            re.findall(
                r"^<details>\s*<summary>(?:[^<\n]|</?code>)+</summary>\n\n.+?\n\n</details>$",
                cell.source,
                re.DOTALL | re.MULTILINE,
            )
        )
        if not opened == closed == good:
            yield (
                f"{where} has a <details> that is not folded everywhere: it needs a <summary>, "
                "a blank line after it, and a blank line before </details>, all in one cell"
            )


PREDICT = "**Predict.** "
RIGHT, WRONG = "**Right.** ", "**Not quite.** "
PREDICTION = re.compile(
    rf"(?:\A|\n\n){re.escape(PREDICT)}(.+?)\n\n(<details>.*</details>)\Z", re.DOTALL
)
CHOICE = re.compile(
    r"^<details><summary>([^\n]+)</summary>\n\n((?:(?!</?details>).)+?)\n\n</details>$",
    re.DOTALL | re.MULTILINE,
)


def questions(page: Page) -> Iterator[str]:
    """Predict, then look: choices that unfold, each with its reason, before the cell that shows."""
    if page.is_assignment:
        return
    asked, letters = 0, set()
    following = [cell.cell_type for cell in page.cells[1:]] + [""]
    main_text = page.named[: len(before_exercises(page.cells))]
    for (where, cell), kind in zip(main_text, following, strict=False):
        if cell.cell_type != "markdown" or not re.search(
            r"<details|^\*\*Predict", cell.source, re.M
        ):
            continue
        asked += 1
        found = PREDICTION.search(cell.source)
        if found is None or "<details" in cell.source[: found.start(2)]:
            yield (
                f"{where} folds or predicts without the form of a question: a paragraph that "
                f"begins with `{PREDICT}`, and then choices that end the cell"
            )
            continue
        choices = CHOICE.findall(found[2])
        letters |= {label[0] for label, reason in choices if reason.startswith(RIGHT)}
        if not found[1].endswith("?"):
            yield f"{where} has a question that does not end in a question mark"
        if kind != "code":
            yield f"{where} asks what no code cell after it shows"
        if between := CHOICE.sub("", found[2]).strip():
            yield f"{where} has something among the choices that is none: {between[:40]}"
        yield from (f"{where} {fault}" for fault in faults_of_choices(choices))
    least = QUESTIONS if page.is_chapter else SIBLING_QUESTIONS
    if asked < least:
        yield f"lets the reader predict {asked} times (at least {least})"
    if asked > 1 and len(letters) == 1:
        yield f"has {letters.pop()} as the right choice of every question"


def faults_of_choices(choices: list[tuple[str, str]]) -> Iterator[str]:
    if len(choices) not in (3, 4):
        yield f"has {len(choices)} choices (3 or 4)"
    if "".join(label[:3] for label, _ in choices) != "A. B. C. D. "[: 3 * len(choices)]:
        yield "has choices that do not begin with A., B., C. in order"
    for label, reason in choices:
        if re.search(r"[`$]|\*\*", label):
            yield f"has markup in a choice that is shown raw, say <code>: {label}"
        if re.search(r"""["']""", label):
            yield f"has straight quotes in a choice, which the page would leave so: {label}"
        verdict = re.match(rf"{re.escape(RIGHT)}|{re.escape(WRONG)}", reason)
        if verdict is None:
            yield f"explains without `{RIGHT}` or `{WRONG}` in front: {label}"
        elif words(reason[verdict.end() :]) < 5:
            yield f"does not say why: {label}"
    if (rights := sum(reason.startswith(RIGHT) for _, reason in choices)) != 1:
        yield f"has {rights} right choices (exactly 1)"
    if len({label[3:] for label, _ in choices}) < len(choices):
        yield "has the same choice twice"


def links(page: Page) -> Iterator[str]:
    for where, cell in page.markdown:
        text = re.sub(r"`[^`\n]*`|\$[^$\n]+\$", "", cell.source)
        for label, target in re.findall(r"\[([^\]]+)\]\(<?([^)\s>]+)>?\)", text):
            if re.match(r"https?:|mailto:", target):
                continue
            if page.is_assignment:
                yield f"{where} links to {target}, which no student has beside it: name the chapter"
                continue
            name, _, anchor = target.partition("#")
            other = (page.path.parent / name) if name else page.path
            if not other.is_file():
                yield f"{where} links to {target}, which does not exist"
            elif anchor and anchor not in anchors(other):
                yield f"{where} links to {target}, which has no such heading"
            elif other.name == "bibliography.md" and not is_cited(label, other.parent):
                yield f"{where} cites “{label}”, which references.bib lacks (Surname ..., year)"


def anchors(path: Path) -> set[str]:
    if path.suffix == ".ipynb":
        cells = parse(path.read_text(encoding="utf-8")).cells
        text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    else:
        text = path.read_text(encoding="utf-8")
    explicit = re.findall(r"^\(([\w-]+)\)=", text, re.MULTILINE)
    return {slug(heading) for heading in re.findall(r"^#+ +(.+)$", text, re.MULTILINE)} | {
        *explicit
    }


def is_cited(label: str, folder: Path) -> bool:
    """Whether a label such as “Vaswani et al., 2017” belongs to an entry of the bibliography."""
    year = re.search(r"\b(\d{4})\b", label)
    if year is None:
        return not re.search(r"\d", label)  # a link to the page, no citation
    for entry in parse_file(str(folder / "references.bib")).entries.values():
        people = entry.persons.get("author", [])
        surname = " ".join(people[0].last_names) if people else entry.fields.get("title", "")
        if entry.fields.get("year") == year[1] and label.startswith(surname.strip("{}")):
            return True
    return False


# Rules: the shape of a chapter


def opening(page: Page) -> Iterator[str]:
    if not page.cells or page.cells[0].cell_type != "markdown":
        yield "does not begin with its title"
        return
    text = page.cells[0].source
    number = re.match(r"(a?)0*(\d+[a-z]?)_", page.path.name)
    kind = "Assignment " if page.is_assignment else ""
    title = rf"# {kind}{number[2]} · \w" if number else r"# \w"
    if not re.match(title, text):
        yield f"needs a title like `{title.removesuffix(chr(92) + 'w')}Say it with a verb`"
    titles = [t for _, c in page.markdown for t in re.findall(r"^# .+$", prose(c.source), re.M)]
    if len(titles) != 1:
        yield f"has {len(titles)} titles of the first level"
    if not (page.is_chapter or page.is_sibling):
        return
    told = re.search(r"^\*About (\d+) minutes · ([\d,]+) words · .+\.\*$", text, re.MULTILINE)
    if told is None:
        yield "needs a line `*About 40 minutes · 2,300 words · needs ... .*` in its first cell"
        return
    size = main_line(page.notebook)
    if abs(int(told[1]) - size.minutes) > 2:
        yield f"says {told[1]} minutes, but {size.minutes:.0f} is what its size takes"
    if abs(int(told[2].replace(",", "")) - size.words) > 50:
        yield f"says {told[2]} words, but has {size.words:,}"


def prerequisites(page: Page) -> Iterator[str]:
    """What a page needs can be followed from its first cell."""
    text = page.cells[0].source if page.cells else ""
    told = re.search(r"^\*About .*\bneeds chapters? ([\w, ]+)", text, re.MULTILINE)
    if told is None or page.is_assignment:  # no student has a chapter beside it
        return
    if several := re.fullmatch(r"(\d+) to (\d+)", told[1]):
        numbers = [str(n) for n in range(int(several[1]), int(several[2]) + 1)]
    else:
        numbers = re.findall(r"\d+[a-z]?", told[1])
    for number in numbers:
        if not re.search(rf"\]\(0*{number}_\w+\.ipynb[#)]", text):
            yield f"needs chapter {number} and has no link to it in its first cell"


def budget(page: Page) -> Iterator[str]:
    size, limit = main_line(page.notebook), SIBLING_BUDGET
    if page.is_chapter:
        limit = CHAPTER_BUDGET
    if page.is_room:
        limit = ROOM_BUDGET
    if page.is_assignment:
        limit = ASSIGNMENT_BUDGET
    for what in ("words", "cells", "figures"):
        if getattr(size, what) > getattr(limit, what):
            yield f"has {getattr(size, what):,} {what} (at most {getattr(limit, what):,})"
    if size.minutes > MAX_MINUTES and not page.is_assignment:
        yield f"takes {size.minutes:.0f} minutes (at most {MAX_MINUTES})"


def ending(page: Page) -> Iterator[str]:
    """A chapter ends with its idea bare, a summary in three lines, and exercises."""
    if not (page.is_chapter or page.is_sibling):
        return
    text = "\n\n".join(cell.source for _, cell in page.markdown)
    sections = re.findall(r"^## +(.+)$", text, re.MULTILINE)
    if sections[-2:] != ["Summary", "Exercises"]:
        yield "does not end with the sections Summary and Exercises"
        return
    summary = re.search(r"^## Summary\s+(.*?)\s+^## Exercises", text, re.DOTALL | re.MULTILINE)
    lines = summary[1].split("\n") if summary else []
    if len([line for line in lines if re.match(r"[-*\d]", line)] or lines) != 3:
        yield "has a summary that is not a list of three lines"
    code = [c for c in before_exercises(page.cells) if c.cell_type == "code"]
    if page.is_chapter and code:
        count = len([line for line in code[-1].source.split("\n") if line.strip()])
        if count > BARE_IDEA:
            yield f"ends its main text on {count} lines of code (at most {BARE_IDEA})"


EXERCISE = re.compile(r"^(?:#{3,4} +|\*\*)(?:Exercise +)?(\d+)\b", re.MULTILINE)


def exercises(page: Page) -> Iterator[str]:
    if not (page.is_chapter or page.is_sibling):
        return
    after = page.cells[len(before_exercises(page.cells)) :]
    found: dict[int, list[NotebookNode]] = {}
    current: list[NotebookNode] = []
    for cell in after:
        if cell.cell_type == "markdown" and (start := EXERCISE.search(cell.source)):
            current = found.setdefault(int(start[1]), [])
        current.append(cell)
    least, most = EXERCISES if page.is_chapter else (1, EXERCISES[1])
    if not least <= len(found) <= most or list(found) != list(range(1, len(found) + 1)):
        yield f"has the exercises {list(found)}, where {least} to {most} in order are wanted"
    for number, cells in found.items():
        if not re.search(r"\d+ min", cells[0].source):
            yield f"does not say how many minutes exercise {number} takes"
        solved = [cell for cell in cells if "solution" in tags(cell) or "<details>" in cell.source]
        if not solved:
            yield f"has no folded solution of exercise {number}"


def solutions(page: Page) -> Iterator[str]:
    for where, cell in page.named:
        if "solution" not in tags(cell):
            if re.match(r"# @title Solution", cell.source):
                yield f"{where} is a solution without the tag"
            continue
        if cell.cell_type != "code":
            yield f"{where} is a solution in Markdown: fold it with <details>"
            continue
        if {key: cell.metadata.get(key) for key in FOLDED} != FOLDED or (
            "hide-cell" not in tags(cell)
        ):
            yield f"{where} is a solution that is not folded everywhere: refresh"
        if not re.match(r"# @title Solution \d+: \S", cell.source):
            yield f"{where} needs a first line `# @title Solution 1: what it is`"
        if not has_assert(cell):
            yield f"{where} is a solution that asserts nothing"


# Rules: assignments

LEVEL = "(?:easy|medium|hard)(?: to (?:medium|hard))?"
QUESTION = re.compile(rf"\(([\d.]+) points?, (\d+) min, {LEVEL}\)$")
TOLD = re.compile(rf"^\*([\d.]+) points · about (\d+) minutes · {LEVEL} · needs .+\.\*$", re.M)


def as_nbgrader_wants(page: Page) -> Iterator[str]:
    if page.is_assignment:
        yield from sources.faults(page.notebook)


def points_as_told(page: Page) -> Iterator[str]:
    """Readers are told the points that the metadata says, and what the questions add up to."""
    if not page.is_assignment or any(as_nbgrader_wants(page)):
        return
    worth = worth_of_questions(page)
    for heading, points in worth.items():
        told = QUESTION.search(heading)
        if told is None:
            yield f"needs an end like `(4 points, 15 min, medium)` in its heading “{heading}”"
        elif float(told[1]) != points:
            yield f"says {told[1]} points in “{heading}”, where the graded cells have {points:g}"
    told = TOLD.search(page.cells[0].source) if page.cells else None
    if told is None:
        yield (
            "needs a line `*20 points · about 90 minutes · easy to hard · needs chapter 1.*` "
            "in its first cell"
        )
        return
    if float(told[1]) != sum(worth.values()):
        yield f"says {told[1]} points, but its graded cells have {sum(worth.values()):g}"
    needed = sum(int(found[2]) for heading in worth if (found := QUESTION.search(heading)))
    least, most = ASSIGNMENT_MINUTES
    if not least <= int(told[2]) <= most or not needed <= int(told[2]) <= needed + 15:
        yield (
            f"says {told[2]} minutes, where its questions take {needed}: up to 15 more for "
            f"reading, and {least} to {most} in all"
        )


def worth_of_questions(page: Page) -> dict[str, float]:
    """The points of the graded cells under each heading that has any."""
    worth: dict[str, float] = {}
    heading = "the start"
    for _, cell in page.named:
        if cell.cell_type == "markdown":
            heading = [heading, *re.findall(r"^#+ +(.+)$", cell.source, re.MULTILINE)][-1]
        elif sources.said(cell).get("grade"):
            worth[heading] = worth.get(heading, 0) + (sources.said(cell).get("points") or 0)
    return worth


def minutes(page: Page) -> float:
    """How long a notebook takes: an assignment says so itself, for its work is not in its size."""
    told = TOLD.search(page.cells[0].source) if page.is_assignment and page.cells else None
    return float(told[2]) if told else main_line(page.notebook).minutes


RULES = [
    stored_form,
    cell_ids,
    cell_metadata,
    run_in_order,
    errors_on_purpose,
    skipped_with_reason,
    clean_outputs,
    line_widths,
    source_habits,
    few_imports,
    figures,
    figure_style,
    plain_markdown,
    formulas,
    folded_answers,
    questions,
    links,
    opening,
    prerequisites,
    budget,
    ending,
    exercises,
    solutions,
    as_nbgrader_wants,
    points_as_told,
]


def problems(path: Path) -> list[str]:
    """Everything that is wrong with one notebook, a line each."""
    page = Page(path)
    return [problem for rule in RULES for problem in rule(page)]
