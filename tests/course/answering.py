"""Put the answers of a catalogue, such as `answers/a1.py`, to the steps of their questions.

A check that fails in another way than with a hint fails here.
"""

import importlib
from collections import Counter
from dataclasses import dataclass

import pytest

from course import sources
from course.model import Draw
from mini_attention.checks import CheckFailed

CUT = "# %%\n"  # between the cells of an answer that has several


@dataclass(frozen=True)
class Found:
    weight: int  # of the steps that passed
    hints: list
    used: list
    errors: dict


class Assignment:
    """An assignment by its number: questions, source, and the answers that tests put to them."""

    def __init__(self, number):
        self.number = number
        assignment = importlib.import_module(f"course.assignments.a{number}").ASSIGNMENT
        self.questions = {question.grade_id: question for question in assignment.questions}
        self.answers = importlib.import_module(f"tests.course.answers.a{number}")
        source = sources.SOURCES / f"{assignment.name}.ipynb"
        self.points = sources.points(source)
        self.solved = cells_of(sources.read(source))
        self.untouched = cells_of(sources.student_notebook(sources.read(source)))

    def put(self, sandbox, grade_id, answer):
        """An answer to a question, behind the cells of the source that it needs."""
        cells = [*self.solved[: self.answers.BEFORE], answer]
        return put(sandbox, self.questions[grade_id], cells)

    def asked(self, style):
        """The questions that a right answer is for: that in its name, else all."""
        question = style.partition(": ")[0]
        return [question] if question in self.questions else list(self.questions)


def cells_of(notebook):
    """What the grader loads of a notebook: its code without the graded cells."""
    return [c.source for c in notebook.cells if c.cell_type == "code" and not is_graded(c)]


def is_graded(cell):
    return sources.said(cell).get("grade", False)


def put(sandbox, question, cells, seed=0):
    cells = [part for cell in cells for part in cell.split(CUT)]
    with sandbox.student(cells, forbidden=question.forbidden) as student:
        hints = [hint_of(step, student, seed + n) for n, step in enumerate(question.steps)]
        passed = [s.weight for s, hint in zip(question.steps, hints, strict=True) if not hint]
        return Found(sum(passed), [h for h in hints if h], student.used(), student.errors)


def hint_of(step, student, seed):
    try:
        step.run(student, Draw.of(seed))
    except CheckFailed as failed:
        return " ".join(str(failed).split())
    return ""


def parameters(named, most):
    """Group, name and values of each answer as parameters: of a group, all but a few wait for
    `make course`.
    """
    seen, found = Counter(), []
    for group, name, *values in named:
        seen[group] += 1
        marks = [pytest.mark.full] if seen[group] > most else []
        found.append(pytest.param(*values, id=name, marks=marks))
    return found
