"""The tool that runs and checks notebooks, tried on small notebooks made for it."""

import base64
from io import BytesIO
from pathlib import Path

import nbformat
import pytest
from PIL import Image

from tests.course import small
from tools import notebooks, rules
from tools.notebooks import main

FIRST = """# 1 · Count the words

*About 5 minutes · 140 words · needs nothing.*"""
UNNAMED = "00000000"  # as random as the ids that Jupyter gives
CAPTION = {
    "image": {"alt": "A white square with nothing at all on it, drawn by a test"},
    "figure": {"caption": "The square that this test draws.", "name": "fig-square"},
}


def picture(mode="RGB", colour="white", width=2):
    file = BytesIO()
    Image.new(mode, (width, 3), colour).save(file, "PNG", dpi=(192, 192))
    return base64.b64encode(file.getvalue()).decode() + "\n"


def display(**data):
    return {"output_type": "display_data", "metadata": {}, "data": data}


def shows(png):
    return display(**{"image/png": png, "text/plain": "<IPython.core.display.Image object>"})


def numbers(text="| key | weight |\n| --- | --: |\n| cat | 0.5 |"):
    return display(**{"text/markdown": f"<details>\n\n{text}\n\n</details>"})


def prints(text, name="stdout"):
    return {"output_type": "stream", "name": name, "text": text}


def fails(name, *frames):
    return {"output_type": "error", "ename": name, "evalue": "", "traceback": [*frames, name]}


def code(source, *outputs, **metadata):
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": UNNAMED,
        "metadata": metadata,
        "outputs": list(outputs),
        "source": source,
    }


def text(source):
    return {"cell_type": "markdown", "id": UNNAMED, "metadata": {}, "source": source}


def solution(number=1, body="assert 1 + 1 == 2"):
    return code(
        f"# @title Solution {number}: add\n{body}", tags=["solution", "hide-cell"], **rules.FOLDED
    )


def exercise(number):
    return text(f"### Exercise {number} · predict it (5 min, easy)\n\nWhat is 1 + 1?")


def choice(letter, verdict="Not quite.", why="Because one and one are two things."):
    return f"<details><summary>{letter}</summary>\n\n**{verdict}** {why}\n\n</details>"


def question(*choices, stem="**Predict.** What is 1 + 1?"):
    choices = choices or (choice("A. 1"), choice("B. 2", "Right."), choice("C. 3"))
    return "\n\n".join([stem, *choices])


def asking(*sources, shown=True):
    """A chapter's main text with these questions, each with a cell that shows the answer."""
    pairs = [(text(source), code("1 + 1")) for source in sources]
    return [cell for pair in pairs for cell in (pair if shown else pair[:1])]


OTHER = question(choice("A. 2", "Right."), choice("B. 3"), choice("C. 4"))


def chapter():
    """The smallest chapter without a fault."""
    exercises = [cell for n in (1, 2, 3) for cell in (exercise(n), solution(n))]
    return [
        text(FIRST),
        code("from mini_attention import cost"),
        text("## A picture\n\nIt shows a square, see [the title](01_words.ipynb#a-picture)."),
        code("assert 2 + 2 == 4"),
        code("plots.show()", shows(picture()), numbers(), mystnb=CAPTION),
        *asking(OTHER, question(), question()),
        text("## Summary\n\n- One.\n- Two.\n- Three."),
        text("## Exercises"),
        *exercises,
    ]


def write(folder, cells, name="01_words.ipynb", finish=True):
    notebook = nbformat.from_dict(
        {
            "cells": cells,
            "metadata": rules.NOTEBOOK_METADATA,
            "nbformat": 4,
            "nbformat_minor": 5,
        }
    )
    if finish:
        notebooks.name_cells(notebook)
        codes = (cell for cell in notebook.cells if cell.cell_type == "code")
        for count, cell in enumerate(codes, start=1):
            cell.execution_count = count
    path = folder / name
    path.write_text(rules.serialise(notebook), encoding="utf-8")
    return path


def problems(folder, cells, **options):
    return rules.problems(write(folder, cells, **options))


def replaced(index, cell):
    cells = chapter()
    cells[index] = cell
    return cells


def with_code(source, *outputs, **metadata):
    """A chapter with one code cell more, in its main text."""
    cells = chapter()
    cells.insert(2, code(source, *outputs, **metadata))
    return cells


def with_text(source):
    cells = chapter()
    cells.insert(3, text(source))
    return cells


# The rules


def test_a_chapter_without_fault_passes(tmp_path):
    assert problems(tmp_path, chapter()) == []


CODE_FAULTS = {
    "stderr": (with_code("1", prints("careful", "stderr")), "stores output on stderr"),
    "svg": (with_code("1", display(**{"image/svg+xml": "<svg/>"})), "svg"),
    "html": (with_code("1", display(**{"text/html": "<b>1</b>"})), "text/html"),
    "home": (with_code("1", prints("/home/me/book.py")), "path of one machine: /home/me"),
    "windows": (with_code("1", prints("C:\\Users\\me")), "path of one machine"),
    "packages": (with_code("1", prints("lib/site-packages/torch/a.py")), "path of one machine"),
    "address": (with_code("1", prints("<Generator at 0x7f00aa00>")), "memory address"),
    "date": (with_code("1", prints("2026-01-02 03:04")), "stores a time"),
    "progress": (with_code("1", prints("7/7 [00:01, 7.1it/s]")), "stores a time"),
    "colour": (with_code("1", prints("\x1b[31mred\x1b[0m")), "colour codes"),
    "wide output": (with_code("1", prints("x" * 80)), "prints a line of 80 characters"),
    "wide code": (with_code(f"name = {'1' * 73}"), "80 characters of code"),
    "semicolon": (with_code("1 + 1;"), "ends in `;`"),
    "timing": (with_code("%timeit 1 + 1"), "uses %timeit 1 + 1"),
    "shell": (with_code("!ls"), "uses !ls"),
    "cell magic": (with_code("%%time\n1 + 1"), "uses %%time"),
    "silenced": (with_code("warnings.simplefilter('ignore')"), "silences warnings"),
    "path": (with_code("open('/tmp/data')"), "names a path of one machine"),
    "syntax": (with_code("1 +"), "is no Python"),
    "seed": (with_code("torch.manual_seed(0)"), "ends in manual_seed"),
    "empty": (with_code(""), "is empty"),
    "unknown tag": (with_code("1", tags=["hide_input"]), "unknown tags: hide_input"),
    "own metadata": (with_code("1", collapsed=True), "metadata beside tags"),
    "folded alone": (with_code("1", jupyter={"source_hidden": True}), "metadata beside tags"),
    "ignored": (
        with_code("# not compared: random\n1", tags=["nbval-ignore-output"]),
        "needs both of the tags nbval-ignore-output and remove-output",
    ),
    "hidden": (with_code("1", tags=["remove-output"]), "needs both of the tags nbval-ignore"),
    "skipped": (
        with_code("1", tags=["nbval-skip", "skip-execution"]),
        "begin it with `# not run: why`",
    ),
    "error": (
        with_code("1 / 0", fails("E")),
        "stores an error but has no tag",
    ),
    "no error": (with_code("1", tags=["raises-exception"]), "raises nothing"),
    "long traceback": (
        with_code(
            "1 / 0",
            fails("E", "Cell In[2], line 1", "File ~/package.py:3, in divide"),
            tags=["raises-exception"],
        ),
        "raises before `%xmode Minimal`",
    ),
    "imports": (
        replaced(1, code("\n".join(f"import mini_attention.a{n}" for n in range(6)))),
        "has 6 imports (at most 5)",
    ),
    "no package": (replaced(1, code("import torch")), "imports nothing from mini_attention"),
}


@pytest.mark.parametrize(("cells", "message"), CODE_FAULTS.values(), ids=CODE_FAULTS)
def test_each_fault_of_a_code_cell_is_named(tmp_path, cells, message):
    assert any(message in problem for problem in problems(tmp_path, cells))


def drawn(source, *outputs, **changes):
    outputs = outputs or (shows(picture()), numbers())
    return replaced(4, code(source, *outputs, mystnb=CAPTION | changes))


def captioned(**changes):
    return drawn("plots.show()", **changes)


def styled(line):
    """The chapter with a figure of its own, one line of it as given."""
    return drawn(f"plots.style()\nfig, ax = plt.subplots()\n{line}\nplots.show()")


FIGURE_FAULTS = {
    "no alt": (captioned(image={}), "needs an alt text"),
    "file name as alt": (captioned(image={"alt": "figure"}), "needs an alt text"),
    "picture as alt": (
        captioned(image={"alt": "A picture of a square that is white all over"}),
        "needs an alt text",
    ),
    "no caption": (captioned(figure={"name": "fig-square"}), "needs a caption"),
    "no name": (captioned(figure={"caption": "A b c d e f."}), "needs a name of its own"),
    "no metadata": (replaced(4, code("plots.show()", shows(picture()))), "needs an alt text"),
    "no figure": (replaced(4, code("1", mystnb=CAPTION)), "has a caption but no figure"),
    "two": (
        drawn("plots.show()", shows(picture()), shows(picture()), numbers()),
        "shows 2 figures under one caption",
    ),
    "transparent": (
        drawn("plots.show()", shows(picture("RGBA", (0, 0, 0, 0))), numbers()),
        "transparent figure",
    ),
    "wide": (
        drawn("plots.show()", shows(picture(width=1000)), numbers()),
        "so wide that a phone shows its letters 8.7 pixels high (at least 9)",
    ),
    "no table": (drawn("plots.show()", shows(picture())), "no table of the figure's numbers"),
    "words for a table": (
        drawn("plots.show()", shows(picture()), numbers("cat: 0.5 | mouse: 0.5")),
        "no table of the figure's numbers",
    ),
    "shown without": (drawn("plt.show()"), "needs to end with `plots.show()`"),
    "not shown": (drawn("plots.show()\nassert ax"), "needs to end with `plots.show()`"),
    "no style": (drawn("fig, ax = plt.subplots()\nplots.show()"), "draws before `plots.style()`"),
    "letters": (styled("ax.legend(fontsize=8)"), "sets fontsize=8: that is the style's"),
    "stroke": (styled("ax.axhline(1, lw=1)"), "sets lw=1"),
    "resolution": (styled("fig.set(dpi=300)"), "sets dpi=300"),
    "colour": (styled("ax.plot(x, color='0.5')"), "sets color='0.5'"),
    "colour of an edge": (styled("ax.bar(x, y, edgecolor='red')"), "sets edgecolor='red'"),
    "map": (styled("ax.imshow(x, cmap='jet')"), "sets cmap='jet'"),
    "letter of a colour": (styled("ax.plot(x, y, 'ko')"), "sets the colour in 'ko'"),
    "code of a colour": (styled("shade = ['#BBD6E8']"), "names the colour '#BBD6E8'"),
    "unasserted": (replaced(3, code("2 + 2")), "whose numbers no cell beside it asserts"),
    "name twice": (
        with_code("assert True\nplots.show()", shows(picture()), numbers(), mystnb=CAPTION),
        "needs a name of its own",
    ),
}


@pytest.mark.parametrize(("cells", "message"), FIGURE_FAULTS.values(), ids=FIGURE_FAULTS)
def test_each_fault_of_a_figure_is_named(tmp_path, cells, message):
    assert any(message in problem for problem in problems(tmp_path, cells))


@pytest.mark.parametrize(
    "line",
    [
        "ax.plot(x, y, 's', color='C1', markerfacecolor='white', label='key')",
        "ax.imshow(x, cmap=plots.COLOUR_MAP, vmin=0, vmax=1)",
        "ax.axhline(1, **plots.GUIDE)",
        "ax.bar(x, y, color=[plots.TINTS[0], 'C2'][at])",
        "ax.plot(x, y, '-.', marker='^', zorder=2)",
    ],
)
def test_a_figure_may_choose_among_what_the_style_offers(tmp_path, line):
    assert problems(tmp_path, styled(line)) == []


def test_a_figure_of_the_greatest_width_has_letters_that_a_phone_shows_large_enough(tmp_path):
    shown = shows(picture(width=round(192 * 4.8)))
    assert problems(tmp_path, drawn("plots.show()", shown, numbers())) == []


TEXT_FAULTS = {
    "directive": ("```{note}\nHello.\n```", "a MyST directive"),
    "colon fence": (":::{tip}\nHello.\n:::", "a MyST directive"),
    "role": ("See {numref}`fig-square`.", "a MyST role"),
    "label": ("(here)=\n## Here", "a MyST label"),
    "comment": ("% hidden", "a MyST comment"),
    "block break": ("+++", "a MyST block break"),
    "picture": ("![A square](square.png)", "a picture that no code of the page made"),
    "emoji": ("Done \U0001f680", "an emoji"),
    "just": ("It is just a sum.", "says “just”"),
    "open formula": ("$$\nx", "unclosed $$"),
    "tight formula": ("So\n$$\nx\n$$\n\nholds.", "a blank line before and after"),
    "open answer": ("<details><summary>Answer</summary>\n\nTwo.", "not folded everywhere"),
    "tight answer": (
        "<details><summary>Answer</summary>\nTwo.\n\n</details>",
        "not folded everywhere",
    ),
    "lost link": ("See [the end](09_end.ipynb).", "links to 09_end.ipynb, which does not exist"),
    "lost anchor": ("See [there](01_words.ipynb#nowhere).", "has no such heading"),
    "lost anchor here": ("See [there](#nowhere).", "has no such heading"),
    "unknown paper": ("[Nobody, 1999](bibliography.md)", "references.bib lacks"),
    "wrong year": ("[Vaswani et al., 2018](bibliography.md)", "references.bib lacks"),
    "second title": ("# Another title", "has 2 titles"),
}


@pytest.mark.parametrize(("source", "message"), TEXT_FAULTS.values(), ids=TEXT_FAULTS)
def test_each_fault_of_the_prose_is_named(tmp_path, source, message):
    bibliography(tmp_path)
    assert any(message in problem for problem in problems(tmp_path, with_text(source)))


def bibliography(folder):
    (folder / "bibliography.md").write_text("# Bibliography\n")
    (folder / "references.bib").write_text(
        "@article{a, author = {Vaswani, Ashish and Shazeer, Noam}, title = {T}, year = 2017}"
    )


@pytest.mark.parametrize(
    "source",
    [
        "[Vaswani et al., 2017](bibliography.md) and [the bibliography](bibliography.md)",
        "Code such as `{note}` and `![a](b)` and `[x](y)` is no markup.",
        "So\n\n$$\nx\n$$\n\nholds.",
        "See [the web](https://example.org/home/x).",
    ],
)
def test_good_prose_passes(tmp_path, source):
    bibliography(tmp_path)
    assert problems(tmp_path, with_text(source)) == []


QUESTION_FAULTS = {
    "two choices": (question(choice("A. 1"), choice("B. 2", "Right.")), "has 2 choices (3 or 4)"),
    "five choices": (
        question(choice("A. 2", "Right."), *(choice(f"{letter}. {letter}") for letter in "BCDE")),
        "has 5 choices (3 or 4)",
    ),
    "no letters": (
        question(choice("1"), choice("2", "Right."), choice("3")),
        "do not begin with A., B., C. in order",
    ),
    "another order": (
        question(choice("B. 1"), choice("A. 2", "Right."), choice("C. 3")),
        "do not begin with A., B., C. in order",
    ),
    "none right": (question(*(choice(f"{a}. {a}") for a in "ABC")), "has 0 right choices"),
    "two right": (
        question(choice("A. 1"), choice("B. 2", "Right."), choice("C. two", "Right.")),
        "has 2 right choices",
    ),
    "no verdict": (
        question(choice("A. 1", "Well."), choice("B. 2", "Right."), choice("C. 3")),
        "in front: A. 1",
    ),
    "no reason": (
        question(choice("A. 1", why="It is not."), choice("B. 2", "Right."), choice("C. 3")),
        "does not say why: A. 1",
    ),
    "right without reason": (
        question(choice("A. 1"), choice("B. 2", "Right.", "Indeed."), choice("C. 3")),
        "does not say why: B. 2",
    ),
    "same choice": (
        question(choice("A. 1"), choice("B. 2", "Right."), choice("C. 1")),
        "has the same choice twice",
    ),
    "raw code": (
        question(choice("A. `1`"), choice("B. 2", "Right."), choice("C. 3")),
        "shown raw, say <code>: A. `1`",
    ),
    "straight quotes": (
        question(choice("A. one's"), choice("B. 2", "Right."), choice("C. 3")),
        "has straight quotes in a choice",
    ),
    "raw formula": (
        question(choice("A. $1$"), choice("B. 2", "Right."), choice("C. 3")),
        "shown raw, say <code>: A. $1$",
    ),
    "no question": (
        question(stem="**Predict.** Say what 1 + 1 is."),
        "does not end in a question mark",
    ),
    "a word between": (
        question(choice("A. 1"), "Or is it", choice("B. 2", "Right."), choice("C. 3")),
        "something among the choices that is none: Or is it",
    ),
    "not at the end": (question() + "\n\nNow look.", "without the form of a question"),
    "no stem": (question(stem="What is 1 + 1?"), "without the form of a question"),
    "no choices": ("**Predict.** What is 1 + 1?", "without the form of a question"),
    "a folded answer": (
        f"What is 1?\n\n<details><summary>Answer</summary>\n\nOne.\n\n</details>\n\n{question()}",
        "without the form of a question",
    ),
}


@pytest.mark.parametrize(("source", "message"), QUESTION_FAULTS.values(), ids=QUESTION_FAULTS)
def test_each_fault_of_a_question_is_named(tmp_path, source, message):
    assert any(message in problem for problem in questions(tmp_path, asking(source)))


def questions(folder, cells, name="01_words.ipynb"):
    return list(rules.questions(rules.Page(write(folder, cells, name))))


def test_a_question_is_followed_by_the_cell_that_shows(tmp_path):
    for cells in asking(question(), shown=False), [*asking(question(), shown=False), text("2.")]:
        found = questions(tmp_path, cells)
        assert any("asks what no code cell after it shows" in problem for problem in found)


@pytest.mark.parametrize(
    ("name", "least"), {"01_words": 3, "01b_words": 2, "words": 2, "assignments/a1_add": 0}.items()
)
def test_a_page_asks_its_reader_to_predict(tmp_path, name, least):
    (tmp_path / "assignments").mkdir()
    good = [OTHER, question(), question()]
    assert questions(tmp_path, asking(*good[:least]), f"{name}.ipynb") == []
    if least:
        assert questions(tmp_path, asking(*good[: least - 1]), f"{name}.ipynb") == [
            f"lets the reader predict {least - 1} times (at least {least})"
        ]


def test_the_right_choice_can_not_be_known_by_its_letter(tmp_path):
    assert questions(tmp_path, asking(*[question()] * 3)) == [
        "has B as the right choice of every question"
    ]


def test_hints_of_exercises_are_no_questions(tmp_path):
    hint = "\n\n<details><summary>Hint</summary>\n\nCount.\n\n- a list\n\n</details>"
    assert problems(tmp_path, replaced(13, text(exercise(1)["source"] + hint))) == []


def test_a_choice_may_hold_code_and_formulas_in_its_reason(tmp_path):
    shape = choice("A. <code>b i e</code>", "Right.", "A row for each of $i$ queries:\n\n$$i$$")
    cells = asking(question(shape, choice("B. 2"), choice("C. 3")), question(), question())
    assert questions(tmp_path, cells) == []


@pytest.mark.parametrize(
    ("needs", "numbers"),
    [("chapter 2b", ["2b"]), ("chapters 1, 4 and 5", ["1", "4", "5"]), ("chapters 1 to 2", "12")],
)
def test_a_page_links_to_the_chapters_that_it_needs(tmp_path, needs, numbers):
    first = FIRST.replace("needs nothing", f"needs {needs}")
    links = [f"[{number}](0{number}_page.ipynb)" for number in numbers]
    for number in numbers:
        (tmp_path / f"0{number}_page.ipynb").touch()
    assert problems(tmp_path, replaced(0, text(f"{first}\n\nYou need {links}."))) == []
    assert problems(tmp_path, replaced(0, text(f"{first}\n\nYou need {links[1:]}."))) == [
        f"needs chapter {numbers[0]} and has no link to it in its first cell"
    ]


def without(*indices):
    return [cell for index, cell in enumerate(chapter()) if index not in indices]


SHAPE_FAULTS = {
    "no title": (replaced(0, text("Hello.")), "needs a title like `# 1 · Say it with a verb`"),
    "wrong number": (replaced(0, text(FIRST.replace("# 1", "# 2"))), "needs a title like"),
    "code first": (without(0), "does not begin with its title"),
    "no plan": (replaced(0, text("# 1 · Count")), "needs a line `*About"),
    "wrong minutes": (
        replaced(0, text(FIRST.replace("5 min", "40 min"))),
        "says 40 minutes, but 6 is what its size takes",
    ),
    "old minutes": (replaced(0, text(FIRST.replace("5 min", "9 min"))), "says 9 minutes, but 6"),
    "wrong words": (replaced(0, text(FIRST.replace("140 w", "2,000 w"))), "says 2,000 words"),
    "old words": (replaced(0, text(FIRST.replace("140 w", "210 w"))), "says 210 words, but has"),
    "no way back": (
        replaced(0, text(FIRST.replace("needs nothing", "needs chapter 2"))),
        "needs chapter 2 and has no link to it",
    ),
    "too long": (with_text("word " * 2501), "words (at most 2,500)"),
    "too many cells": (
        [*chapter()[:2], *(code("1") for _ in range(25)), *chapter()[2:]],
        "has 31 cells (at most 25)",
    ),
    "no summary": (without(11), "does not end with the sections Summary and Exercises"),
    "long summary": (
        replaced(11, text("## Summary\n\n- One.\n- Two.\n- Three.\n- Four.")),
        "not a list of three lines",
    ),
    "long ending": (
        replaced(10, code("\n".join(f"assert {n} >= 0" for n in range(16)))),
        "ends its main text on 16 lines",
    ),
    "few exercises": (chapter()[:-2], "has the exercises [1, 2], where 3 to 5"),
    "no time": (replaced(13, text("### Exercise 1 · easy")), "how many minutes exercise 1"),
    "unsolved": (without(14), "has no folded solution of exercise 1"),
    "unfolded": (
        replaced(14, code("# @title Solution 1: add\nassert True", tags=["solution", "hide-cell"])),
        "not folded everywhere",
    ),
    "untagged": (replaced(14, code("# @title Solution 1: add\nassert 1")), "without the tag"),
    "untitled": (
        replaced(14, code("assert 1", tags=["solution", "hide-cell"], **rules.FOLDED)),
        "needs a first line",
    ),
    "unasserted": (replaced(14, solution(1, "1 + 1")), "a solution that asserts nothing"),
}


@pytest.mark.parametrize(("cells", "message"), SHAPE_FAULTS.values(), ids=SHAPE_FAULTS)
def test_each_fault_of_the_shape_is_named(tmp_path, cells, message):
    assert any(message in problem for problem in problems(tmp_path, cells))


def test_a_sibling_may_be_half_as_long_only(tmp_path):
    cells = with_text("word " * 1501)
    found = problems(tmp_path, cells, name="01b_words.ipynb")
    assert any("words (at most 1,500)" in problem for problem in found)


def test_execution_counts_have_to_be_complete_and_in_order(tmp_path):
    path = write(tmp_path, chapter())
    stored = path.read_text()
    path.write_text(stored.replace('"execution_count": 2,', '"execution_count": null,'))
    assert any("has execution count None, not 2" in problem for problem in rules.problems(path))
    path.write_text(stored.replace('"execution_count": 3,', '"execution_count": 7,'))
    assert any("has execution count 7, not 3" in problem for problem in rules.problems(path))


FILE_FAULTS = {
    "kernel": ('"name": "python3"', '"name": "my-env"', "metadata other than the kernelspec"),
    "version": ('"mimetype"', '"version": "3.11.7",\n   "mimetype"', "metadata other than"),
    "random id": ('"id": "a-picture"', '"id": "0a1b2c3d"', "random cell ids"),
    "same id": ('"id": "a-picture-2"', '"id": "a-picture"', "an id that another cell has"),
    "odd id": ('"id": "a-picture"', '"id": "A_Picture"', "no id in lower case"),
    "other layout": ('"cells": [', '"cells":  [', "is not stored as"),
    "old format": ('"nbformat_minor": 5', '"nbformat_minor": 4', "not in the format nbformat 4.5"),
}


@pytest.mark.parametrize(("old", "new", "message"), FILE_FAULTS.values(), ids=FILE_FAULTS)
def test_each_fault_of_the_file_is_named(tmp_path, old, new, message):
    path = write(tmp_path, chapter())
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert any(message in problem for problem in rules.problems(path))


# Sources of assignments


def source(*replaced):
    """The smallest one without a fault, with other cells in the place of those with the same id."""
    return [dict(cell) for cell in small.notebook(*replaced).cells]


def told(name, old, new):
    (cell,) = (cell for cell in small.cells() if cell.id == name)
    assert old in cell.source
    return source(small.text(name, cell.source.replace(old, new)))


SOURCE_FAULTS = {
    "to nbgrader": (source(small.graded("double", "1", points=0)), "points above 0; got 0"),
    "a link": (
        told("ask-guess", "##", "[Chapter 1](../01_words.ipynb)\n\n##"),
        "which no student has beside it",
    ),
    "another title": (told("title", "Assignment 1", "Part 1"), "a title like `# Assignment 1 · "),
    "no plan": (told("title", "about 60 minutes", "an hour"), "needs a line `*20 points · about"),
    "other points": (told("title", "10 p", "20 p"), "says 20 points, but its graded cells have 10"),
    "too few": (told("title", "60", "40"), "says 40 minutes, where its questions take 50"),
    "few minutes": (told("title", "60", "50"), "up to 15 more for reading, and 60 to 120 in all"),
    "many minutes": (told("title", "60", "66"), "says 66 minutes, where its questions take 50"),
    "a long one": (
        told("ask-guess", "30 min", "120 min"),
        "says 60 minutes, where its questions take 140",
    ),
    "a question without points": (
        told("ask-double", " (6 points, 20 min, easy)", ""),
        "needs an end like `(4 points, 15 min, medium)` in its heading “1 · Write it”",
    ),
    "a question's points": (
        told("ask-double", "(6", "(5"),
        "says 5 points in “1 · Write it (5 points, 20 min, easy)”, where the graded cells have 6",
    ),
    "too long": (
        source(
            small.text("title", small.TITLE.replace("60", "121")),
            small.text("ask-guess", "## 2 · Predict it (4 points, 100 min, hard)"),
        ),
        "says 121 minutes, where its questions take 120",
    ),
    "words": (told("title", "·", "· " + "word " * 2501), "words (at most 2,500)"),
}


def assignment(folder, cells):
    (folder / "assignments").mkdir(exist_ok=True)
    return write(folder, cells, "assignments/a1_double.ipynb")


def test_a_source_without_fault_passes(tmp_path):
    assert rules.problems(assignment(tmp_path, source())) == []


@pytest.mark.parametrize(("cells", "message"), SOURCE_FAULTS.values(), ids=SOURCE_FAULTS)
def test_each_fault_of_a_source_is_named(tmp_path, cells, message):
    assert any(message in problem for problem in rules.problems(assignment(tmp_path, cells)))


def test_a_chapter_says_nothing_to_nbgrader(tmp_path):
    found = problems(tmp_path, with_code("1", nbgrader=small.says("double")))
    assert any("metadata beside tags and captions: nbgrader" in problem for problem in found)


def test_refresh_keeps_what_nbgrader_is_told_and_names_its_cells(tmp_path):
    cells = source()
    for cell in cells:
        cell["id"] = UNNAMED
    path = tmp_path / "a1_double.ipynb"
    path.write_text(write(tmp_path, cells, "old.ipynb", finish=False).read_text())
    assert main(["refresh", str(path)]) == 0
    stored = nbformat.read(path, as_version=4).cells
    assert [cell.metadata for cell in stored] == [cell["metadata"] for cell in cells]
    assert [cell.id for cell in stored if cell.metadata] == [
        "write-double",
        "double",
        "guess",
        "guessed",
    ]


def test_students_notebooks_are_left_alone():
    parents = {path.parent.name for path in notebooks.all_notebooks()}
    assert "book" in parents
    assert "student" not in parents


def test_report_gives_the_minutes_that_an_assignment_tells(tmp_path, capsys):
    main(["report", str(assignment(tmp_path, source()))])
    assert capsys.readouterr().out.split()[-1] == "60"


def test_every_rule_has_been_seen_red(tmp_path):
    """Whoever adds a rule adds a fault that it finds."""
    faults = [cells for cells, _ in (CODE_FAULTS | FIGURE_FAULTS | SHAPE_FAULTS).values()]
    faults += [with_text(source) for source, _ in TEXT_FAULTS.values()]
    bibliography(tmp_path)
    pages = [rules.Page(write(tmp_path, cells)) for cells in faults]
    pages += [rules.Page(assignment(tmp_path, cells)) for cells, _ in SOURCE_FAULTS.values()]
    seen = {rule.__name__ for rule in rules.RULES if any(any(rule(page)) for page in pages)}
    of_the_file = {"stored_form", "cell_ids", "run_in_order"}
    assert seen | of_the_file == {rule.__name__ for rule in rules.RULES}


# The commands


def test_check_names_the_notebook_and_fails(tmp_path, capsys):
    path = write(tmp_path, with_code("1 + 1;"))
    assert main(["check", str(path)]) == 1
    assert "01_words.ipynb: cell 3" in capsys.readouterr().out


def test_check_passes_a_good_notebook(tmp_path, capsys):
    assert main(["check", str(write(tmp_path, chapter()))]) == 0
    assert capsys.readouterr().out == "1 notebooks, 0 problems\n"


def test_report_counts_the_main_line_without_solutions(tmp_path, capsys):
    main(["report", str(write(tmp_path, chapter()))])
    assert capsys.readouterr().out.split()[-5:] == ["01_words.ipynb", "135", "6", "1", "6"]


def test_a_path_that_does_not_exist_is_an_error(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["check", str(tmp_path / "nothing.ipynb")])
    assert "no such notebook" in capsys.readouterr().err


UNREFRESHED = [
    text("# Try it"),
    code("%xmode Minimal"),
    code("print('one')\nprint('two')"),
    code("raise ValueError('on purpose')", tags=["raises-exception"]),
    code("# @title Solution 1: add\nassert 1 + 1 == 2\n1 + 1", tags=["solution"], collapsed=True),
]


def test_a_second_refresh_changes_no_byte(tmp_path, capsys):
    cells = [*UNREFRESHED, *asking(OTHER, question())]
    path = write(tmp_path, cells, "try.ipynb", finish=False)
    assert main(["refresh", str(path)]) == 0
    first = path.read_bytes()
    assert main(["refresh", str(path)]) == 0
    assert path.read_bytes() == first
    assert capsys.readouterr().out.split() == [
        f"{path}:",
        "refreshed",
        f"{path}:",
        "unchanged",
    ]
    assert rules.problems(path) == []


def test_refresh_names_cells_folds_solutions_and_merges_streams(tmp_path):
    path = write(tmp_path, UNREFRESHED, "try.ipynb", finish=False)
    main(["refresh", str(path)])
    cells = nbformat.read(path, as_version=4).cells
    assert [cell.id for cell in cells] == [
        "try-it",
        "try-it-2",
        "try-it-3",
        "try-it-4",
        "solution-1",
    ]
    assert cells[4].metadata == rules.FOLDED | {"tags": ["solution", "hide-cell"]}
    assert [output.text for output in cells[2].outputs] == ["one\ntwo\n"]
    assert cells[3].outputs[0].traceback == ["ValueError: on purpose\n"]


def test_refresh_keeps_ids_that_say_something(tmp_path):
    cells = [text("# Try it"), code("1")]
    cells[1]["id"] = "my-cell"
    path = write(tmp_path, cells, "try.ipynb", finish=False)
    main(["refresh", str(path)])
    assert [cell.id for cell in nbformat.read(path, as_version=4).cells] == ["try-it", "my-cell"]


REFUSED = {
    "an error": ("1 / 0", "cell 2 (try-it-2) failed\n"),
    "stderr": ("import sys\nprint('careful', file=sys.stderr)", "cell 2 (try-it-2) writes to st"),
    "a path": ("print('/home/me/x')", "would store a path of this machine: /home/me/x"),
    "a dead kernel": ("import os\nos._exit(1)", "cell 2 (try-it-2) failed"),
}


@pytest.mark.parametrize(("source", "message"), REFUSED.values(), ids=REFUSED)
def test_a_notebook_that_can_not_be_stored_is_left_as_it_was(tmp_path, capsys, source, message):
    path = write(tmp_path, [text("# Try it"), code(source)], "try.ipynb", finish=False)
    before = path.read_bytes()
    assert main(["refresh", str(path)]) == 1
    assert f"{path}: not written: " in (error := capsys.readouterr().err)
    assert message in error
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_tracebacks_lose_the_folders_of_the_machine():
    trace = f"{notebooks.ROOT}/mini_attention/heads.py\n/home/me/lib/site-packages/torch/a.py"
    assert notebooks.without_machine(trace) == "mini_attention/heads.py\ntorch/a.py"
    assert notebooks.without_machine("File /tmp/ipykernel_12/345.py:1") == "File <cell>:1"


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.ipynb"
    path.write_text("old")

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(notebooks.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        notebooks.write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(Path(tmp_path).iterdir()) == [path]


def test_a_picture_is_not_read_as_text():
    cell = nbformat.from_dict(code("draw()", shows(picture()), prints("drawn")))
    assert list(rules.output_texts(cell)) == ["<IPython.core.display.Image object>", "drawn"]
