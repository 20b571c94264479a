"""The course's commands, for instructors.

python -m course grade SUBMISSIONS --assignment 1     grade a class
python -m course marks RESULTS --for moodle           bring the totals to a platform
python -m course student                              make the students' notebooks
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from . import assignments, journal, platforms, sources
from .grading import RULES, Plan
from .journal import Refused
from .run import Progress, grade_class, sheet_of, submissions
from .sandbox import PROMISES, Limits, level, why_not_contained
from .sandbox.limits import MIB

SEED = "COURSE_SEED"  # the environment variable
EXAMPLES = """\
examples:
  python -m course grade downloads/a1 --assignment 1
  python -m course grade downloads/a1 --assignment 1 --resume
  python -m course marks downloads/a1-results --for moodle --roster worksheet.csv
  python -m course student --check
"""
# What an option is called, what it sets, its unit there, and what it says.
LIMITS = (
    ("--seconds", "wall_seconds", 1, "for a cell, or for one call of a function"),
    ("--seconds-of-cpu", "cpu_seconds", 1, "of computing, for all processes of a student"),
    ("--seconds-in-all", "total_seconds", 1, "for one question of a submission"),
    ("--memory", "memory_bytes", MIB, "MiB, beyond what Python and torch need"),
    ("--disk", "disk_bytes", MIB, "MiB of files"),
    ("--processes", "processes", 1, "processes and threads"),
    ("--output", "text_bytes", MIB, "MiB of text in one answer"),
    ("--numbers", "answer_bytes", MIB, "MiB of numbers in one answer"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when all went well, 1 when something differs, 2 for what can't be done as asked."""
    given = parser().parse_args(arguments)
    try:
        code: int = given.run(given)
    except (Refused, sources.SourceError) as refused:
        print(f"course: {refused}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        named = f": {error.filename}" if error.filename else ""
        print(f"course: {error.strerror or error}{named}", file=sys.stderr)
        return 2
    return code


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m course",
        description="Commands for those who teach from this book.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    _grade(commands.add_parser("grade", help="grade a class's notebooks"))
    _marks(commands.add_parser("marks", help="bring the totals to Moodle, Canvas or Blackboard"))
    _student(commands.add_parser("student", help="make the students' notebooks of the sources"))
    return top


# python -m course grade


def _grade(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Grade every notebook in a folder or a zip file as a learning platform exports it, each "
        "apart from the others and from you. Writes grades.csv, summary.html and a page of "
        "feedback for each student."
    )
    add = command.add_argument
    add(
        "submissions",
        type=Path,
        metavar="SUBMISSIONS",
        help="the folder or the zip file with all submissions",
    )
    add("--assignment", type=int, required=True, metavar="N", help="which assignment it is")
    add("--out", type=Path, metavar="RESULTS", help="where the results go (SUBMISSIONS-results)")
    add("--resume", action="store_true", help="go on with results that are there already")
    add(
        "--jobs",
        type=_count,
        metavar="K",
        default=os.cpu_count() or 1,
        help="at once (one for each core)",
    )
    add("--level", choices=sorted(PROMISES), help="how far submissions are contained (as possible)")
    add(
        "--seed",
        metavar="SECRET",
        help=f"a secret that hidden inputs are drawn from (${SEED}, or a new one)",
    )
    add(
        "--forbidden",
        choices=tuple(RULES),
        default="tell",
        help="what becomes of a question that is answered with what it forbids: its points stand "
        "and you are told (tell), or it has 0 points (zero)",
    )
    limits = command.add_argument_group("limits, for each student and question")
    for option, name, unit, text in LIMITS:
        default = getattr(Limits(), name) // unit
        limits.add_argument(
            option,
            dest=name,
            type=_count,
            default=int(default),
            metavar="N",
            help=f"{text} ({default:g})",
        )
    command.set_defaults(run=grade)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number above 0 is expected; got {text}")
    return int(text)


def grade(given: argparse.Namespace) -> int:
    """Grade a class, and say where the results are and what to look at."""
    root = given.submissions.resolve()
    out = given.out or root.parent / f"{root.name.removesuffix('.zip')}-results"
    if out.resolve().is_relative_to(root):
        raise Refused(f"{out} is among the submissions: name another folder with --out")
    module = module_of(given.assignment)
    assignment = importlib.import_module(module).ASSIGNMENT
    sheet = sheet_of(assignment)
    found = submissions(given.submissions, sheet)
    chosen = _level(given.level)
    seed = given.seed or os.environ.get(SEED)
    with journal.opened(out, assignment.name, seed, given.resume) as book:
        points, limits = sheet.paper.points, _limits(given)
        plan = Plan(module, points, book.seed, chosen, limits, given.forbidden)
        print(f"level {PROMISES[chosen]}", flush=True)
        try:
            results = grade_class(found, sheet, plan, book, given.jobs, Progress())
        except KeyboardInterrupt:
            print(f"\nstopped: add --resume to go on; what is graded is in {out}", file=sys.stderr)
            return 130
    told = [(result.student, line) for result in results for line in result.told]
    for student, line in told[:20]:
        print(f"{student}: {line}")
    if len(told) > 20:
        print(f"... and {len(told) - 20} more remarks in the summary")
    graded = sum(not result.problem for result in results)
    print(f"{graded} of {len(results)} submissions graded: {out / 'summary.html'}")
    return 0


def module_of(number: int) -> str:
    """The module of an assignment, by its number."""
    found = [module.name for module in pkgutil.iter_modules(assignments.__path__)]
    known = sorted(int(name[1:]) for name in found if re.fullmatch(r"a\d+", name))
    if number not in known:
        raise Refused(f"there is no assignment {number}; there are {', '.join(map(str, known))}")
    return f"{assignments.__name__}.a{number}"


def _level(wanted: str | None) -> str:
    if wanted == "contained" and (why := why_not_contained()):
        raise Refused(f"this system can't contain a process ({why}): --level limited is left")
    return wanted or level()


def _limits(given: argparse.Namespace) -> Limits:
    return Limits(**{name: getattr(given, name) * unit for _, name, unit, _ in LIMITS})


# python -m course marks


def _marks(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Write the totals of grades.csv as the file that a platform imports: RESULTS/PLATFORM.csv. "
        "Edit grades.csv before, if you want other totals."
    )
    add = command.add_argument
    add("results", type=Path, metavar="RESULTS", help="the folder that `grade` has written")
    add("--for", dest="platform", choices=sorted(platforms.PLATFORMS), required=True)
    add(
        "--roster", type=Path, metavar="EXPORTED.csv", help="what the platform exported, to fill in"
    )
    add("--column", default="", help="the assignment's column in it, by a part of its heading")
    add("--out-of", type=_count, metavar="N", help="what full points are on the platform")
    command.set_defaults(run=marks)


def marks(given: argparse.Namespace) -> int:
    """Write the platform's file; whoever is not in it is told."""
    found = platforms.read_marks(given.results / "grades.csv")
    roster = platforms.read_table(given.roster) if given.roster else None
    platform = platforms.PLATFORMS[given.platform]
    title = journal.assignment_of(given.results)
    table, told = platforms.fill(platform, found, title, roster, given.column, given.out_of)
    path = given.results / f"{given.platform}.csv"
    path.write_bytes(table.data())
    for line in told:
        print(line, file=sys.stderr)
    print(f"{path}: to import in {given.platform.capitalize()}")
    return 0


# python -m course student


def _student(command: argparse.ArgumentParser) -> None:
    command.description = "Make the students' notebooks of the sources in book/assignments."
    command.add_argument("--check", action="store_true", help="only say which would change")
    command.set_defaults(run=student)


def student(given: argparse.Namespace) -> int:
    return int(sources.write_students(given.check) > 0)
