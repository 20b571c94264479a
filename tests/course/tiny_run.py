"""Grade a class of the small assignment in a process of its own, which can be killed.

python -m tests.course.tiny_run SUBMISSIONS SOURCES RESULTS
"""

import sys
from pathlib import Path

from course import run
from course.grading import Plan
from course.journal import opened
from course.sandbox import Limits
from tests.course import tiny

FAST = Limits(wall_seconds=2.0, total_seconds=20.0)
PLAN = Plan("tests.course.tiny", {"double": 5.0, "guess": 2.0}, "secret", "limited", FAST)

if __name__ == "__main__":
    root, folder, out = map(Path, sys.argv[1:])
    run.code_digest = str  # as in the test that kills this
    sheet = run.sheet_of(tiny.ASSIGNMENT, folder)
    with opened(out, tiny.ASSIGNMENT.name, PLAN.seed, False) as journal:
        found = run.submissions(root, sheet)
        run.grade_class(found, sheet, PLAN, journal, 1, lambda *_: None)
