"""How long a class takes: 100 submissions of assignment 1 on two cores, in at most 90 seconds.

`make course` runs it.
"""

import json
import os
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

from course import run, sources
from course.assignments import a1
from course.grading import Plan
from course.journal import opened
from course.sandbox import level
from tests.course.answers import a1 as answers
from tests.course.handed_in import code, hand_in, notebook

MOST_SECONDS, JOBS = 90, 2


def a_class(number):
    """Notebooks as students hand them in: one in two right, in several styles."""
    source = json.loads((sources.SOURCES / f"{a1.ASSIGNMENT.name}.ipynb").read_text("utf-8"))
    kept = [cell | {"outputs": []} for cell in source["cells"] if cell["cell_type"] == "code"]
    wrong = cycle([*kept, code(text)] for _, _, text, *_ in answers.WRONG)
    right = cycle([[code(text)] for text in answers.RIGHT.values()] + [kept])
    made = (next(right if i % 2 else wrong) for i in range(number))
    return {f"s{i:03}.ipynb": notebook(*cells) for i, cells in enumerate(islice(made, number))}


def measure(number, folder):
    """Seconds by the clock, seconds of computing in all processes, and the results."""
    sheet = run.sheet_of(a1.ASSIGNMENT)
    plan = Plan("course.assignments.a1", sheet.paper.points, "seed", level())
    begin = time.monotonic()
    found = run.submissions(hand_in(folder / "class", a_class(number)), sheet)
    with opened(folder / "out", a1.ASSIGNMENT.name, plan.seed, False) as journal:
        results = run.grade_class(found, sheet, plan, journal, JOBS, run.Progress())
    took = os.times()
    computed = took.user + took.system + took.children_user + took.children_system
    return time.monotonic() - begin, computed, results


def main(number=100):
    with tempfile.TemporaryDirectory() as scratch:
        seconds, computed, results = measure(number, Path(scratch))
    full = sum(result.points == 20 for result in results)
    print(f"{number} submissions, {full} with all points: {seconds:.0f} s, {computed:.0f} s of CPU")
    if seconds > MOST_SECONDS * number / 100:
        sys.exit(f"100 submissions take more than {MOST_SECONDS} s on {JOBS} cores")


if __name__ == "__main__":
    main()
