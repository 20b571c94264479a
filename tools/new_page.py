"""Begin a page of the book: a notebook that keeps all rules and has yet to be written.

    make page NAME=07_say_where_tokens_stand     a chapter
    make page NAME=01c_shift_all_scores          what goes deeper than a chapter, beside it

The page gets its place in the contents and in the table of the opening page. What has to be written
is marked WRITE; the tests fail as long as one of these marks is left.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from nbformat import NotebookNode, from_dict, v4

from tools import notebooks, rules

OPENING = """# {number} · {title}

WRITE: what we build or find out here, in one sentence.

You will be able to

- WRITE: one thing that readers can do afterwards;
- WRITE: another.

You need WRITE: the chapters before, and what else a reader has to know.

*About {minutes} minutes · {words} words · needs WRITE: which chapters.*"""
QUESTION = """## WRITE: what this section shows ({ordinal})

WRITE: what we want to see, and why.

**Predict.** WRITE: what will the next cell print?

{choices}"""
CHOICE = """<details><summary>{letter}. WRITE: {which} answer</summary>

{verdict}WRITE: why, in a sentence of its own.

</details>"""
FIRST_CELL = """import torch
from mini_attention import attention_weights

words = torch.eye(3)
attention_weights(words, words).argmax(dim=-1)"""
CELL = "attention_weights(words, words).shape"
SUMMARY = """WRITE: what we saw.

## Summary

- WRITE: the first thing to remember.
- WRITE: the second.
- WRITE: the third.

## Exercises"""
EXERCISE = """### Exercise {number} · Predict (5 minutes, easy)

WRITE: what to find out, and how to check it."""
SOLUTION = """# @title Solution {number}: WRITE what it shows
assert len(words) == 3"""


def cells(is_chapter: bool) -> list[NotebookNode]:
    """A page of the smallest size that the rules allow."""
    made = []
    asked = rules.QUESTIONS if is_chapter else rules.SIBLING_QUESTIONS
    for index in range(asked):
        choices = [
            CHOICE.format(
                letter=letter,
                which=which,
                verdict=rules.RIGHT if number == index % 3 else rules.WRONG,
            )
            for number, (letter, which) in enumerate(
                zip("ABC", ("one", "another", "a third"), strict=True)
            )
        ]
        made.append(
            v4.new_markdown_cell(QUESTION.format(ordinal=index + 1, choices="\n\n".join(choices)))
        )
        made.append(v4.new_code_cell(CELL if index else FIRST_CELL))
    made.append(v4.new_markdown_cell(SUMMARY))
    for number in range(1, (rules.EXERCISES[0] if is_chapter else 1) + 1):
        made.append(v4.new_markdown_cell(EXERCISE.format(number=number)))
        solution = v4.new_code_cell(SOLUTION.format(number=number))
        solution.metadata = from_dict({"tags": ["solution", "hide-cell"]})
        made.append(solution)
    return made


def named(stem: str) -> tuple[str, str]:
    """The number and the title that a file's name stands for."""
    found = re.fullmatch(r"0*(\d+[a-z]?)_([a-z0-9_]*[a-z0-9])", stem)
    if found is None or not re.match(r"\d\d", stem):
        raise ValueError(
            f"{stem!r} is no name of a page: two digits and a title, such as "
            "07_say_where_tokens_stand, or 01c_shift_all_scores for what goes deeper"
        )
    return found[1], found[2].replace("_", " ").capitalize()


def write(path: Path) -> int:
    """Store the notebook, run, and return its minutes."""
    number, title = named(path.stem)
    notebook = v4.new_notebook(cells=cells(is_chapter=path.stem[2] == "_"))
    size = rules.main_line(notebook)
    minutes, words = round(size.minutes), size.words + rules.words(OPENING)
    opening = OPENING.format(number=number, title=title, minutes=minutes, words=words)
    notebook.cells.insert(0, v4.new_markdown_cell(opening))
    path.write_text(rules.serialise(notebook), encoding="utf-8")
    notebooks.refresh(path)
    return minutes


def insert(file: Path, pattern: str, stem: str, line: str) -> None:
    """Put a line in its order among those that match: the order of what the pattern captures."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    found = [
        (index, match[1]) for index, text in enumerate(lines) if (match := re.match(pattern, text))
    ]
    before = [index for index, other in found if other < stem]
    lines.insert(before[-1] + 1 if before else found[0][0], f"{line}\n")
    file.write_text("".join(lines), encoding="utf-8")


def begin(stem: str, root: Path = notebooks.ROOT) -> Path:
    path = root / "book" / f"{stem}.ipynb"
    number, title = named(stem)
    if path.exists():
        raise ValueError(f"book/{path.name} is there already")
    minutes = write(path)
    insert(root / "_toc.yml", r" *- file: book/(\d\w+)", stem, f"      - file: book/{stem}")
    row = f"| [{number} · {title}]({path.name}) | WRITE: what the reader builds | {minutes} |"
    insert(root / "book/intro.md", r"\| \[.*\]\((\d\w+)\.ipynb\) \|", stem, row)
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        path = begin(" ".join(sys.argv[1:] if arguments is None else arguments))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"Write what is marked WRITE in book/{path.name} and in its row of book/intro.md.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
