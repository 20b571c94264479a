"""Write what came of a grading: a table, a page for each student, and a summary of the class.

    RESULTS/grades.csv            a row for every submission
    RESULTS/feedback/NAME.html    a page for a student: points, and a hint for each step
    RESULTS/summary.html          distribution, points by question, common mistakes, remarks

Names of files, texts of errors and all that a program says are the students': they are shown, and
never become markup, a formula of a spreadsheet or a path.
"""

from __future__ import annotations

import csv
import io
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .journal import Result, write_whole

PAGES = Path(__file__).parent / "pages"
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet runs a cell that begins so
BARS = 10
COMMON = 15  # mistakes that are listed
NAMED = re.compile(r"(?:It looks like this mistake|Or like this): (.+?)\.(?:\n|$)", re.DOTALL)
PLACE = re.compile(r"\ncell \d+, line .*")  # the line of a student's cell
RAISED = re.compile(r"^raised \w+: .+", re.MULTILINE)
UNWRITTEN = re.compile(r"not written yet|is still `\.\.\.`")
NUMBER = re.compile(r"(?<!\w)-?\d+(\.\d+)?(e[+-]?\d+)?")


@dataclass(frozen=True)
class Paper:
    """What was graded: its title, and each question's title and points by its grade_id."""

    title: str
    titles: Mapping[str, str]
    points: Mapping[str, float]

    @property
    def most(self) -> float:
        return round(sum(self.points.values()), 2)


def write_reports(folder: Path, paper: Paper, results: Sequence[Result]) -> None:
    """All reports on a class. Pages of students who are no longer among them are removed."""
    write_whole(folder / "grades.csv", table(paper, results))
    pages = {f"{result.name}.html": feedback(paper, result) for result in results}
    (folder / "feedback").mkdir(exist_ok=True)
    for old in (folder / "feedback").glob("*.html"):
        if old.name not in pages:
            old.unlink()
    for name, page in pages.items():
        write_whole(folder / "feedback" / name, page)
    write_whole(folder / "summary.html", summary(paper, results))


# The table


def table(paper: Paper, results: Sequence[Result]) -> str:
    """The text of grades.csv. What was not graded has no points, not even 0."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(["student", "id", "file", *paper.points, "total", "most", "remarks"])
    for result in results:
        points = {verdict.grade_id: number(verdict.points) for verdict in result.verdicts}
        total = "" if result.problem else number(result.points)
        cells = [points.get(grade_id, "") for grade_id in paper.points]
        remarks = "; ".join(" ".join(line.split()) for line in result.told)
        who = map(guarded, (result.student, result.key, result.file))
        writer.writerow([*who, *cells, total, number(paper.most), guarded(remarks)])
    return "\ufeff" + file.getvalue()  # the mark by which Excel knows UTF-8


def guarded(text: str) -> str:
    """A text that no spreadsheet takes for a formula.

    >>> guarded("=1+1")
    "'=1+1"
    """
    return f"'{text}" if text.startswith(FORMULA) else text


def unguarded(text: str) -> str:
    return text[1:] if text.startswith(tuple(f"'{mark}" for mark in FORMULA)) else text


def number(value: float) -> str:
    """Points with at most two decimals.

    >>> number(2.50), number(3.0), number(1 / 3)
    ('2.5', '3', '0.33')
    """
    return f"{value:.2f}".rstrip("0").rstrip(".")


# The pages


def feedback(paper: Paper, result: Result) -> str:
    """The page of a student."""
    return _page("feedback.html", paper, result=result, titles=paper.titles)


def summary(paper: Paper, results: Sequence[Result]) -> str:
    """The page on the class."""
    graded = [result for result in results if not result.problem]
    points = [result.points for result in graded]
    return _page(
        "summary.html",
        paper,
        results=results,
        graded=graded,
        median=statistics.median(points) if points else 0,
        bars=bars(points, paper.most),
        questions=[_question(paper, grade_id, graded) for grade_id in paper.points],
        mistakes=common_mistakes(paper, graded),
        told=[(one.name, one.student, line) for one in results for line in one.told],
    )


def _page(name: str, paper: Paper, **values: Any) -> str:
    pages = Environment(
        loader=FileSystemLoader(PAGES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters["number"] = number
    return pages.get_template(name).render(title=paper.title, most=paper.most, **values)


def bars(points: Sequence[float], most: float) -> list[dict[str, Any]]:
    """How many have how much, in ten equal steps; the last includes the full points."""
    step = most / BARS
    counts = Counter(min(int(p / step), BARS - 1) for p in points) if step else Counter()
    longest = max(counts.values(), default=1)
    return [
        {
            "label": f"{number(i * step)} to {number((i + 1) * step)}",
            "count": counts[i],
            "width": round(500 * counts[i] / longest),
        }
        for i in range(BARS)
    ]


def _question(paper: Paper, grade_id: str, graded: Sequence[Result]) -> dict[str, Any]:
    most = paper.points[grade_id]
    points = [v.points for result in graded for v in result.verdicts if v.grade_id == grade_id]
    return {
        "title": paper.titles[grade_id],
        "mean": statistics.fmean(points) if points else 0,
        "most": most,
        "full": sum(p >= most for p in points),
        "none": sum(p <= 0 for p in points),
    }


def common_mistakes(paper: Paper, graded: Sequence[Result]) -> list[dict[str, Any]]:
    """What most students got wrong, by the name of the mistake where a hint names one."""
    counts = Counter(
        (verdict.grade_id, what)
        for result in graded
        for verdict in result.verdicts
        for what in {mistake(outcome.hint) for outcome in verdict.outcomes if outcome.hint}
    )
    return [
        {"count": count, "question": paper.titles[grade_id], "what": what}
        for (grade_id, what), count in counts.most_common(COMMON)
    ]


def mistake(hint: str) -> str:
    """What a hint says is wrong: the same text for the same mistake on other inputs."""
    if named := NAMED.search(hint):
        return " ".join(named[1].split())
    if raised := RAISED.search(hint):
        return raised[0][:160]
    first = PLACE.sub("", hint.strip().partition("\n\n")[0])
    if UNWRITTEN.search(" ".join(first.split())):
        return "not written yet"
    return NUMBER.sub("…", " ".join(first.split()))[:160]
