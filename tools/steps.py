"""What `make book`, `make test` and their kin do, step by step.

    python -m tools.steps book          build the book strictly, from nothing
    python -m tools.steps test          everything: style, types, tests, notebooks, the pages
    python -m tools.steps unit          the tests of the package that take a minute together
    python -m tools.steps package       all tests of the package, with the torch in .venv
    python -m tools.steps full          the tests that there is no time for in `test`
    python -m tools.steps course        all answers to the assignments, and how long a class takes
    python -m tools.steps processors    tests and notebooks as on older processors, 1 thread and 2
    python -m tools.steps browser       every page of the book in a real browser
    python -m tools.steps screenshots   pictures of every page

A step that passes takes a line. One that fails shows what it printed and what to do about it; the
others still run, and the last line adds up what passed and what failed.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import groupby, product
from pathlib import Path
from xml.etree import ElementTree as ET

from tools import browser

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
BUILD = ROOT / "_build"
WORKERS = "2"  # a kernel with torch takes about half a gigabyte


@dataclass(frozen=True)
class Step:
    name: str
    command: tuple[str, ...]
    remedy: str
    is_pytest: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    lacking: Callable[[], str | None] = lambda: None  # what keeps it from running on this machine


@dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other: "Count") -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self) -> str:
        text = f"{self.passed} passed, {self.failed} failed"
        return f"{text}, {self.skipped} skipped" if self.skipped else text


def module(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", *arguments)


def pytest(*arguments: str) -> tuple[str, ...]:
    """Run tests in `WORKERS` processes, without nbval, which takes each of them seconds to load.

    One process runs all tests of a file, which share what is slow to begin. The files come in their
    order: the short ones are last, and no process waits for long at the end.
    """
    files = ("--dist", "loadfile", "--no-loadscope-reorder")
    return module("pytest", "-q", "-p", "no:nbval", "-n", WORKERS, *files, *arguments)


def nbval(workers: str) -> tuple[str, ...]:
    """Run all notebooks and compare what they print.

    One process runs a notebook from its first cell to its last, hence `loadfile`. A cell may take
    five minutes; nbval's own limit is more than half an hour.
    """
    options = ("--nbval", "--nbval-cell-timeout=300", "--dist", "loadfile")
    return module("pytest", "-q", *options, "-n", workers, "book")


# Whatever looks at the pages of this book looks at the same ones. They are made for a folder of a
# site, as a reader's are, and of a repository that nobody knows.
PAGES = "_build/stored/html"
ADDRESSES = {"BOOK_URL": "https://example.org/attention/", "GITHUB_REPOSITORY": ""}
# It runs every notebook; pages from the stored outputs take a third of the time.
BOOK = Step(
    "book",
    (str(BIN / "jupyter-book"), "build", ".", "--all", "-q", "-W", "-n", "--keep-going"),
    "mend what the lines above name: the strict build lets no warning pass",
)
STORED = Step("pages", module("tools.stored"), BOOK.remedy, environment=ADDRESSES)
BROWSER = Step(
    "browser",
    module(
        "pytest",
        "-q",
        "tests/browser",
        *("-n", WORKERS, "--dist", "loadgroup"),  # one worker looks at a page from all sides
        *("--book", PAGES),
    ),
    "`make browser` does this alone; `make screenshots` shows the pages",
    is_pytest=True,
    environment=ADDRESSES,
    lacking=browser.lacking,
)
# Those in one process first, and at once. No page is made twice: the tests and the browser look at
# what one step makes. No notebook is run twice: one step compares every output with the stored one,
# and the pages are made of these. A notebook that fails there fails in `make book`, too.
TEST = (
    Step(
        "style",
        module("ruff", "check", "."),
        "`make format` mends most of it",
    ),
    Step(
        "format",
        module("ruff", "format", "--check", "."),
        "`make format` mends it; refresh the notebooks that it touched",
    ),
    Step(
        "types",
        module("mypy"),
        "the lines above name the file and the type that was expected",
    ),
    STORED,
    Step(
        "tests",
        pytest("--cov", "-m", "not full"),
        "run one alone: .venv/bin/pytest tests/FILE.py -k NAME; where all pass and a branch of "
        "the package is missing, it needs a test",
        is_pytest=True,
        environment={"BUILT_PAGES": PAGES},
    ),
    Step(
        "notebooks",
        nbval(WORKERS),
        "if the new output is right, `make refresh` stores it",
        is_pytest=True,
    ),
    BROWSER,
)


def around_the_package() -> tuple[str, ...]:
    """The files of tests that import what stands around the package, and need it to run."""
    needs = re.compile(r"^(?:from|import) (?:benchmarks|course|experiments|tools)\b", re.MULTILINE)
    files = sorted((ROOT / "tests").glob("test_*.py"))
    return tuple(f"tests/{file.name}" for file in files if needs.search(file.read_text("utf-8")))


ELSEWHERE = (*around_the_package(), "tests/course")
PACKAGE = Step(
    "tests",
    pytest(*(f"--ignore={path}" for path in ELSEWHERE)),
    "the package has to work with every torch that pyproject.toml allows: mend it, or the range",
    is_pytest=True,
)
UNIT = replace(
    PACKAGE,
    command=(*PACKAGE.command, "-m", "not slow and not full"),
    remedy="run one alone: .venv/bin/pytest tests/FILE.py -k NAME",
)
COURSE = Step(
    "course",
    pytest("tests/course"),
    "an answer gets what tests/course/answers says: mend the question, or what is said there",
    is_pytest=True,
)
CLASS = Step(
    "class",
    module("tests.course.measure"),
    "the lines above say how long a class took",
)

FULL = Step(
    "full",
    pytest("-m", "full"),
    "run one alone: .venv/bin/pytest tests/FILE.py -k NAME",
    is_pytest=True,
)
SCREENSHOTS = Step(
    "pictures",
    module("tests.browser.screenshots"),
    "the lines above name the page",
    environment=ADDRESSES,
    lacking=browser.lacking,
)


def run(step: Step) -> Count:
    """Run one step, print how it went, and count what it counted."""
    if reason := step.lacking():
        print(f"{step.name:10} skipped: {reason}", flush=True)
        return Count(skipped=1)
    print(f"{step.name:10} ...", end="" if sys.stdout.isatty() else "\n", flush=True)
    return tell(step, *perform(step))


def run_at_once(steps: Sequence[Step]) -> Count:
    """Run steps of one process each on several processors, and tell of them in their order."""
    total = Count()
    with ThreadPoolExecutor(int(WORKERS)) as pool:
        for step, done in zip(steps, pool.map(perform, steps), strict=True):
            total.add(tell(step, *done))
    return total


def perform(step: Step) -> tuple[Count, str, float]:
    """What a step counted, what it printed, and the seconds that it took."""
    begin = time.monotonic()
    if step is BOOK:
        forget_builds()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        extra = (f"--junitxml={report}",) if step.is_pytest else ()
        done = subprocess.run(
            [*step.command, *extra],
            cwd=ROOT,
            # One thread each: two workers with two threads each would stand in their own way.
            env={"OMP_NUM_THREADS": "1", **os.environ, **step.environment, "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        count = read_report(report) if report.exists() else Count()
    if not step.is_pytest:
        count = Count(passed=1) if done.returncode == 0 else Count(failed=1)
    elif not count.failed and (done.returncode != 0 or not count.passed):
        count.failed = 1  # the runner itself died, or found no test: no count tells of it
    return count, done.stdout, time.monotonic() - begin


def tell(step: Step, count: Count, output: str, seconds: float) -> Count:
    back = "\r" if sys.stdout.isatty() else ""
    print(f"{back}{step.name:10} {count}  ({seconds:.0f} s)", flush=True)
    if count.failed:
        print(f"\n{complaint(output)}\n\n{step.name} failed: {step.remedy}\n", flush=True)
    return count


def complaint(output: str) -> str:
    """What a step printed, less what does not help: a kernel's notices, the frames of Sphinx."""
    output = re.sub(r"\x1b\[[0-9;]*m", "", output)
    output = re.sub(r"^\[IPKernelApp\] WARNING .*\n", "", output, flags=re.MULTILINE)
    cell = re.search(
        r"^\S*CellExecutionError: (An error occurred.*?)^The above exception",
        output,
        re.DOTALL | re.MULTILINE,
    )
    notebook = re.search(r"^\S+\.ExecutionError: (.+)$", output, re.MULTILINE)
    if cell and notebook:
        return f"{notebook[1]}\n{cell[1].rstrip()}"
    return output.strip()


def read_report(path: Path) -> Count:
    count = Count()
    for suite in ET.parse(path).iter("testsuite"):
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        passed = int(suite.get("tests", 0)) - failed - skipped
        count.add(Count(passed, failed, skipped))
    return count


def forget_builds() -> None:
    """Sphinx does not read an unchanged page again, even when it failed the last time."""
    shutil.rmtree(BUILD, ignore_errors=True)


def run_book() -> int:
    count = run(BOOK)
    if count.failed:
        return 1
    print(f"Open {BUILD / 'html' / 'index.html'}")
    return 0


def run_test() -> int:
    total = Count()
    for is_pytest, steps in groupby(TEST, key=lambda step: step.is_pytest):
        for count in map(run, steps) if is_pytest else [run_at_once([*steps])]:
            total.add(count)
    print(total)
    return 1 if total.failed else 0


def run_unit() -> int:
    return 1 if run(UNIT).failed else 0


def run_package() -> int:
    return 1 if run(PACKAGE).failed else 0


def run_full() -> int:
    return 1 if run(FULL).failed else 0


def run_course() -> int:
    return 1 if run(COURSE).failed + run(CLASS).failed else 0


def run_with_pages(step: Step) -> int:
    """A step that looks at the pages, which are built first. Who asks for it wants it to run."""
    if reason := step.lacking():
        print(reason, file=sys.stderr)
        return 1
    return 1 if run(STORED).failed or run(step).failed else 0


def run_browser() -> int:
    return run_with_pages(BROWSER)


def run_screenshots() -> int:
    status = run_with_pages(SCREENSHOTS)
    if status == 0:
        print(f"Look into {BUILD / 'screenshots'}")
    return status


def instruction_sets() -> tuple[str, ...]:
    """Those that torch has kernels for and this processor has, its own last."""
    import torch  # takes seconds, and no other command needs it

    native = torch.backends.cpu.get_cpu_capability().lower()
    known = ("default", "avx2", "avx512")
    return known[: known.index(native) + 1] if native in known else ("default", native)


def as_on(instructions: str, threads: int, workers: int) -> tuple[Step, Step]:
    """The unit tests and the notebooks, as they run on a processor with these instructions."""
    environment = {"ATEN_CPU_CAPABILITY": instructions, "OMP_NUM_THREADS": str(threads)}
    name = f"{instructions} {threads}"
    remedy = "run it alone with " + " ".join(f"{key}={value}" for key, value in environment.items())
    tests = pytest("-n", str(workers), "-m", "not full")
    return (
        Step(f"{name} tests", tests, remedy, True, environment),
        Step(f"{name} notebooks", nbval(str(workers)), remedy, True, environment),
    )


def run_processors() -> int:
    """Floats differ in their last bits between processors and numbers of threads."""
    total, rows = Count(), ["instructions  threads  tests                   notebooks"]
    for instructions, threads in product(instruction_sets(), (1, 2)):
        workers = max(1, int(WORKERS) // threads)
        tests, notebooks = (run(step) for step in as_on(instructions, threads, workers))
        rows.append(f"{instructions:12}  {threads:7}  {tests!s:22}  {notebooks!s}")
        total.add(tests)
        total.add(notebooks)
    print("", *rows, total, sep="\n")
    return 1 if total.failed else 0


COMMANDS = {
    "book": run_book,
    "test": run_test,
    "unit": run_unit,
    "package": run_package,
    "full": run_full,
    "course": run_course,
    "processors": run_processors,
    "browser": run_browser,
    "screenshots": run_screenshots,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.steps",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=COMMANDS)
    return COMMANDS[parser.parse_args(arguments).what]()


if __name__ == "__main__":
    sys.exit(main())
