"""Grade one submission: its cells are loaded apart from here, and asked question by question.

Every question gets a process of its own with the notebook in it, and every step inputs of its own,
drawn from the secret seed, the student and the step. So what goes wrong in one question, or in one
step, costs that alone, and two students are never asked with the same numbers.
"""

from __future__ import annotations

import hashlib
import importlib
import traceback
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from mini_attention.checks import CheckFailed

from .model import Assignment, Draw, Outcome, Question, Step, Student, Verdict
from .sandbox import Limits, RemoteStudent, Sandbox

SANDBOX = Path(__file__).parent / "sandbox"
LONGEST = 6000  # characters of a hint or an error that are kept
# What becomes of the points for an answer that uses what is forbidden.
# The student reads it as well.
RULES = {"tell": "the points stand until the instructor decides", "zero": "so it has 0 points"}


@dataclass(frozen=True)
class Plan:
    """All that grading depends on, beside the submissions. A helper process gets it as it is."""

    module: str  # of the assignment, such as course.assignments.a1
    points: Mapping[str, float]  # of each question, by its grade_id
    seed: str
    level: str
    limits: Limits = field(default_factory=Limits)
    forbidden: str = "tell"  # a key of RULES

    @property
    def assignment(self) -> Assignment:
        found: Assignment = importlib.import_module(self.module).ASSIGNMENT
        return found


# One question


def grade(
    sandbox: Sandbox,
    plan: Plan,
    cells: Sequence[str],
    given: Sequence[int],
    key: str,
    question: Question,
) -> tuple[Verdict, list[str]]:
    """The verdict on a question, and the errors of the cells that could not be loaded.

    Of cells that were `given` to all, by their numbers, nobody is told what they speak of.
    """
    most = plan.points[question.grade_id]
    try:
        with sandbox.student(cells, forbidden=question.forbidden) as student:
            asked = [run(step, student, plan.seed, key, question) for step in question.steps]
            used, mentioned = student.used(), _mentioned(student, question, given)
            told = [*student.told, *mentioned, *(line for _, ours in asked for line in ours)]
            errors = [clean(f"code cell {n}: {text}") for n, text in student.errors.items()]
    except (CheckFailed, RuntimeError, OSError) as error:  # it could not even be started
        return lost(question, most, f"the notebook could not be loaded: {error}", [str(error)]), []
    outcomes = [outcome for outcome, _ in asked]
    points = scored(outcomes, most)
    if used:
        told.insert(0, f"uses {', '.join(used)}, which is forbidden here ({RULES[plan.forbidden]})")
        points = points if plan.forbidden == "tell" else 0.0
    unique = list(dict.fromkeys(map(clean, told)))
    return Verdict(question.grade_id, points, most, outcomes, unique), errors


def _mentioned(student: RemoteStudent, question: Question, given: Sequence[int]) -> list[str]:
    """Where the student's own text speaks of what is forbidden: no proof that it is used."""
    of_given = tuple(f"cell {number} " for number in given)
    return [line for line in student.mentions(question.forbidden) if not line.startswith(of_given)]


def run(
    step: Step, student: Student, secret: str, key: str, question: Question
) -> tuple[Outcome, list[str]]:
    """What comes of a step, and what an instructor should know of it."""
    seed = seed_of(secret, key, question.grade_id, step.name)
    torch.manual_seed(seed)
    told = []
    try:
        step.run(student, Draw.of(seed))
        hint = ""
    except CheckFailed as failed:
        hint = _with_notes(failed, str(failed) or "this is not right")
    except BaseException as error:  # a student's program can raise whatever it likes
        hint = _with_notes(error, f"{type(error).__name__} was raised: {error}")
        if not _is_students(error):
            told = [f"the check of {step.name!r} failed itself: {hint}"]
    return Outcome(step.name, step.weight, clean(hint)), told


def _with_notes(error: BaseException, text: str) -> str:
    """A text with what is noted on an error and its cause: the line of the student's cell."""
    notes = [note for e in (error, error.__cause__) for note in getattr(e, "__notes__", [])]
    return "\n".join([text, *notes])


def _is_students(error: BaseException) -> bool:
    """Whether an error came out of the student's process."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and Path(frames[-1].filename).parent == SANDBOX


def seed_of(*parts: str) -> int:
    """A number that nobody can know without knowing all parts.

    >>> seed_of("secret", "s05") != seed_of("secrets", "05")
    True
    """
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode(errors="replace")).digest()[:7], "big")


def scored(outcomes: Sequence[Outcome], most: float) -> float:
    """The points for the steps that passed, by their weights."""
    weight = sum(outcome.weight for outcome in outcomes)
    passed = sum(outcome.weight for outcome in outcomes if not outcome.hint)
    return round(most * passed / weight, 2)


def lost(question: Question, most: float, why: str, told: Sequence[str] = ()) -> Verdict:
    """The verdict on a question that could not be asked to its end."""
    outcomes = [Outcome(step.name, step.weight, clean(why)) for step in question.steps]
    return Verdict(question.grade_id, 0.0, most, outcomes, list(told))


def clean(text: str) -> str:
    """A text without what could do something on a terminal or in a file; the line ends stay."""
    text = text.encode(errors="replace").decode()
    kept = "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf"))
    return kept if len(kept) <= LONGEST else f"{kept[:LONGEST]} ... ({len(kept):,} characters)"
