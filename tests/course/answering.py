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

QUICK = 2  # wrong answers of a question that are tried even when there is little time
FEW = 3  # styles of right answers, likewise
CUT = "# %%\n"  # between the cells of an answer that has several


@dataclass(frozen=True)
class Found:
    points: int
    hints: list
    used: list
    errors: dict


def questions_of(number):
    assignment = importlib.import_module(f"course.assignments.a{number}").ASSIGNMENT
    return {question.grade_id: question for question in assignment.questions}


def source_of(number):
    (path,) = sources.SOURCES.glob(f"a{number}_*.ipynb")
    return path


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


def catalogue(wrong):
    """Each wrong answer as a parameter: all but a few of a question wait for `make course`."""
    seen, found = Counter(), []
    for question, name, *rest in wrong:
        seen[question] += 1
        marks = [pytest.mark.full] if seen[question] > QUICK else []
        found.append(pytest.param(question, *rest, id=f"{question}: {name}", marks=marks))
    return found


def styles(right):
    """Each style of a right answer, `style` or `question: style`, as a parameter, as above."""
    seen, found = Counter(), []
    for name in right:
        question, _, _ = name.rpartition(": ")
        seen[question] += 1
        marks = [pytest.mark.full] if seen[question] > FEW else []
        found.append(pytest.param(name, id=name, marks=marks))
    return found
