"""An assignment of two small questions, for tests of what grades it."""

import json

import torch

from course.model import Assignment, Question, Step
from course.sources import SCHEMA
from mini_attention.checks import CheckFailed

TITLE = "Assignment 97: double and guess"
SOLVED = """\
def double(x):
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION"""
GUESSED = """\
### BEGIN SOLUTION
guess = 14
### END SOLUTION"""
TESTED = "assert double(3) == 6"
CHECKED = "assert guess == 14"


def doubles(student, draw):
    x = draw.randn(3, 5)
    got = student.function("double")(x)
    if not torch.equal(got, 2 * x):
        raise CheckFailed("twice x is expected\n\nIt looks like this mistake: not doubled.")


def doubles_one(student, draw):
    number = draw.integer(100, 999)
    if (got := student.function("double")(number)) != 2 * number:
        raise CheckFailed(f"twice {number} is expected; got {got}")


def guesses(student, draw):
    if student.value("guess") != 14:
        raise CheckFailed("a good guess is expected")


ASSIGNMENT = Assignment(
    97,
    "a97_tiny",
    [
        Question(
            "double",
            "Double a number",
            [Step("tensors", 2, doubles), Step("numbers", 1, doubles_one)],
            ("torch.mul",),
        ),
        Question("guess", "Guess", [Step("the guess", 1, guesses)]),
    ],
)


def says(grade_id, **changes):
    meta = {"grade": False, "grade_id": grade_id, "locked": False, "schema_version": SCHEMA}
    return {"nbgrader": meta | {"solution": False, "task": False} | changes}


def cell(source, kind="code", id="some-cell", **metadata):
    made = {"cell_type": kind, "id": id, "metadata": metadata, "source": source}
    return made if kind == "markdown" else made | {"execution_count": None, "outputs": []}


def write_source(folder, title=TITLE, name=ASSIGNMENT.name, points=5):
    """The source of the assignment: 5 points and 2 points."""
    cells = [
        cell(f"# {title}", "markdown", "title"),
        cell("import torch", id="imports"),
        cell(SOLVED, id="double-code", **says("double-code", solution=True)),
        cell(TESTED, id="double", **says("double", grade=True, locked=True, points=points)),
        cell(GUESSED, id="guess-code", **says("guess-code", solution=True)),
        cell(CHECKED, id="guess", **says("guess", grade=True, locked=True, points=2)),
    ]
    content = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.ipynb").write_text(json.dumps(content), encoding="utf-8")
    return folder
