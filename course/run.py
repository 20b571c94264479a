"""Grade a class: find the submissions, grade what is not graded yet, and write the reports."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from . import notebook, sources
from .grading import Plan, clean
from .helpers import Work, grade_all
from .journal import Journal, Refused, Result, digest
from .model import Assignment
from .notebook import Notebook
from .reports import Paper, number, write_reports
from .submissions import Submission, find

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 30  # of the progress bar


@dataclass(frozen=True)
class Sheet:
    """What an assignment's source says: titles and points, and the cells that students got."""

    paper: Paper
    graded: frozenset[str]  # the grader tests by itself
    given: frozenset[str]  # all of the code
    belongs: Callable[[Notebook], str]


def sheet_of(assignment: Assignment, folder: Path = sources.SOURCES) -> Sheet:
    """Read an assignment's source; Refused where it and the questions disagree."""
    source = folder / f"{assignment.name}.ipynb"
    try:
        points = sources.points(source)
        graded = frozenset(sources.check_texts(source))
        student = sources.student_notebook(sources.read(source))
    except (OSError, sources.SourceError) as error:
        raise Refused(f"the assignment's source can't be read: {error}") from None
    titles = {question.grade_id: question.title for question in assignment.questions}
    if alone := sorted(set(points) - set(titles)):
        place = "without a Question of that grade_id in course/assignments"
        raise Refused(f"{source.name} has graded cells {place}: {', '.join(alone)}")
    if alone := sorted(set(titles) - set(points)):
        raise Refused(f"{source.name} has no graded cell for the questions {', '.join(alone)}")
    title = notebook.read(source.read_bytes()).title
    paper = Paper(title, titles, {name: points[name] for name in titles})
    given = frozenset(cell.source.strip() for cell in student.cells if cell.cell_type == "code")
    return Sheet(paper, graded, given, belongs(source))


def belongs(source: Path) -> Callable[[Notebook], str]:
    """Says of a notebook "" where it may be of this source, and else what it is.

    It is of the source that it has most grade_ids of; without any, of the source with its title.
    """
    known = {path: notebook.read(path.read_bytes()) for path in sources.all_sources(source.parent)}

    def says(given: Notebook) -> str:
        def likeness(path: Path) -> tuple[int, bool, bool]:
            other = known[path]
            shared = len(other.grade_ids & given.grade_ids)
            return shared, other.title == given.title, path == source

        nearest = max(known, key=likeness)
        if nearest == source or not any(likeness(nearest)[:2]):
            return ""
        return f"this is another assignment: {known[nearest].title}"

    return says


def submissions(root: Path, sheet: Sheet) -> list[Submission]:
    """What was handed in; Refused where there is nothing."""
    if not root.exists():
        raise Refused(f"{root} does not exist")
    if not root.is_dir() and root.suffix.lower() != ".zip":
        raise Refused(f"{root} is neither a folder nor a zip file")
    try:
        found = find(root, sheet.belongs)
    except notebook.Unreadable as error:
        raise Refused(f"{root}: {error}") from None
    if not found:
        raise Refused(f"{root} has no submissions in it")
    return found


def work_on(one: Submission, sheet: Sheet) -> Work:
    """What is to be loaded of a notebook: what the grader tests by itself is left empty."""
    assert one.notebook is not None
    texts = [cell.source for cell in one.notebook.cells]
    given = [n for n, text in enumerate(texts, 1) if text.strip() in sheet.given]
    kept = ["" if text.strip() in sheet.graded else text for text in texts]
    return Work(one.owner.key, kept, given)


def grade_class(
    found: Sequence[Submission],
    sheet: Sheet,
    plan: Plan,
    journal: Journal,
    jobs: int,
    say: Callable[[int, int, str], None],
) -> list[Result]:
    """The results of all submissions, in their order; reports are written on what there is.

    `say` is called with the number of those that are done, of all, and a line on the last one.
    """
    states = states_of(found, sheet, plan)
    results = {one.file: _known(one, journal, states[one.file]) for one in found}
    works = {
        one.file: work_on(one, sheet)
        for one in found
        if one.notebook and not one.problem and not results[one.file].verdicts
    }
    files = {id(work): file for file, work in works.items()}
    done = len(found) - len(works)

    def finished(work: Work) -> None:
        nonlocal done
        file = files[id(work)]
        result = replace(results[file], verdicts=work.verdicts, errors=work.errors)
        journal.keep(result, states[file])
        results[file], done = result, done + 1
        most = number(sheet.paper.most)
        say(done, len(found), f"{result.student}: {number(result.points)} of {most}")

    say(done, len(found), "")
    try:
        grade_all(plan, works.values(), jobs, finished)
    finally:
        graded = [one for one in results.values() if one.problem or one.verdicts]
        write_reports(journal.folder, sheet.paper, graded)
    return graded


def _known(one: Submission, journal: Journal, state: str) -> Result:
    """What is known of a submission: what the journal has, or all that is seen from outside."""
    blank = Result(
        clean(one.owner.student),
        clean(one.owner.key),
        clean(one.file),
        problem=clean(one.problem),
        remarks=list(map(clean, one.remarks)),
        rivals=one.rivals,
    )
    stored = None if one.problem else journal.known(blank, state)
    return replace(stored, remarks=blank.remarks, rivals=one.rivals) if stored else blank


def states_of(found: Sequence[Submission], sheet: Sheet, plan: Plan) -> dict[str, str]:
    """A digest of all that the result of a submission depends on, for each by its file."""
    shapes = [
        (q.grade_id, q.forbidden, [(step.name, step.weight) for step in q.steps])
        for q in plan.assignment.questions
    ]
    common = [asdict(plan), sorted(sheet.graded), shapes, code_digest()]
    return {one.file: digest(one.digest, one.owner.key, common) for one in found}


def code_digest() -> str:
    """Of the grader itself: what another version graded is graded again."""
    files = sorted(p for top in ("course", "mini_attention") for p in (ROOT / top).rglob("*.py"))
    return digest([hashlib.sha256(path.read_bytes()).hexdigest() for path in files])


@dataclass
class Progress:
    """A bar on a terminal, and a line now and then elsewhere. Both go to stderr."""

    begin: float = 0.0
    at_first: int = 0
    shown: float = 0.0

    def __call__(self, done: int, total: int, line: str) -> None:
        now = time.monotonic()
        if not line:
            self.begin, self.at_first = now, done
        bar = "#" * round(WIDTH * done / total)
        text = f"[{bar:{WIDTH}}] {done} of {total} {self._left(now, done, total)} {line}"
        if sys.stderr.isatty():
            end = "\n" if done == total else ""
            print(f"\r\x1b[K{text[:100]}", end=end, file=sys.stderr, flush=True)
        elif not line or done == total or now - self.shown > 5:
            self.shown = now
            print(text, file=sys.stderr, flush=True)

    def _left(self, now: float, done: int, total: int) -> str:
        if done == self.at_first or done == total:
            return ""
        seconds = (now - self.begin) / (done - self.at_first) * (total - done)
        minutes = f"{seconds / 60:.0f} minutes" if seconds > 90 else f"{seconds:.0f} seconds"
        return f"(about {minutes} left)"
