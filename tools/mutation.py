"""How many small changes to the package the tests notice.

    python -m tools.mutation                            go on where the last run stopped, report
    python -m tools.mutation --fresh                    from nothing
    python -m tools.mutation core                       this part alone: core, plots or checks
    python -m tools.mutation mini_attention/masks.py    this file alone
    python -m tools.mutation --report                   report what is known, run nothing

mutmut changes one place at a time (another operator, None for an argument, a word of a message)
and runs the tests that reach the place, in a copy of the package and its tests in `.mutation`.
It changes what stands in functions: module constants and cached functions stay as they are.

A mutant that no test notices needs a test, or, where the changed program can't do anything else
than the right one, a line in tools/equivalent_mutants.toml that says why. Exit code 0 means that
at least 95 % of the others were noticed, that every survivor is explained, and that every
explanation is of a mutant that survived.
"""

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.steps import BIN, ELSEWHERE, ROOT

WORK = ROOT / ".mutation"
EXPLANATIONS = ROOT / "tools" / "equivalent_mutants.toml"
WANTED = 95.0  # per cent
COPIED = ("mini_attention", "tests", "book", "README.md", "pyproject.toml")


@dataclass(frozen=True)
class Part:
    """Files to change, and the tests to ask about them."""

    name: str
    files: tuple[str, ...]
    tests: tuple[str, ...]


def parts() -> dict[str, Part]:
    """Plots and checks reach the whole package, slowly: their tests answer for them alone.

    The collection of mistakes is in no part: a wrong program made wrong says nothing. Neither are
    the cases that the checks ask: asked with another number they are as good, and whether they
    find what they should is what `tools.mistakes` answers.
    """
    # What these test is not what a line of the package does, and needs more than the package.
    silent = {*ELSEWHERE, "tests/test_package.py"}
    tests = [f"tests/{path.name}" for path in sorted((ROOT / "tests").glob("test_*.py"))]
    asked = [test for test in tests if test not in silent]
    of_checks = [test for test in asked if test.startswith("tests/test_checks")]
    of_plots = ["tests/test_plots.py"]
    core = [test for test in asked if test not in (*of_plots, *of_checks)]
    drawing = ("mini_attention/plots.py", "mini_attention/shown.py")
    package = sorted((ROOT / "mini_attention").glob("*.py"))
    files = [
        *(f"mini_attention/{path.name}" for path in package),
        "mini_attention/dates/__init__.py",
        "mini_attention/repeats/__init__.py",
    ]
    checks = [
        f"mini_attention/checks/{path.name}"
        for path in sorted((ROOT / "mini_attention" / "checks").glob("*.py"))
        if not path.stem.endswith("_cases")
    ]
    made = [
        Part(
            "core",
            tuple(file for file in files if file not in drawing),
            tuple(core),
        ),
        Part("plots", drawing, tuple(of_plots)),
        Part("checks", tuple(checks), tuple(of_checks)),
    ]
    return {part.name: part for part in made}


def part_of(name: str) -> Part:
    """The part of this name, or as much of a part as one file is."""
    if name in parts():
        return parts()[name]
    for part in parts().values():
        if any(Path(name).match(pattern) for pattern in part.files):
            return Part(name.removesuffix(".py").replace("/", "-"), (name,), part.tests)
    raise SystemExit(f"{name} is neither a part ({', '.join(parts())}) nor a file of one")


# Exit codes that mutmut stores. Whoever runs into the time limit, or dies, was noticed.
FAILED, INTERNAL_ERROR = 1, 3
TIMEOUT = (24, -24, 36, 152, 255)
DIED = (-6, -9, -11)
NOTICED = (FAILED, INTERNAL_ERROR, *TIMEOUT, *DIED)
INTERRUPTED = 2


@dataclass(frozen=True)
class Mutant:
    """A change, known by what it changes and not by a number, which the next edit would move."""

    file: str
    function: str
    was: str
    now: str


@dataclass(frozen=True)
class Outcome:
    """What became of all mutants of a run."""

    noticed: Mapping[str, int]  # for each file
    survivors: Sequence[Mutant]
    unfinished: int


@dataclass(frozen=True)
class Verdict:
    """A run's outcome held against the explanations."""

    outcome: Outcome
    explained: Sequence[Mutant]
    unexplained: Sequence[Mutant]
    stale: Sequence[Mutant]

    @property
    def score(self) -> float:
        """Per cent of the mutants that were noticed, the explained ones left out."""
        noticed = sum(self.outcome.noticed.values())
        total = noticed + len(self.unexplained)
        return 100 * noticed / total if total else 0.0

    @property
    def good(self) -> bool:
        wrong = self.unexplained or self.stale or self.outcome.unfinished
        return not wrong and self.score >= WANTED


def judge(outcome: Outcome, reasons: Mapping[Mutant, str], files: Iterable[str]) -> Verdict:
    """Which survivors are explained, and which explanations of `files` explain none."""
    survivors, files = set(outcome.survivors), set(files)
    return Verdict(
        outcome,
        explained=[mutant for mutant in outcome.survivors if mutant in reasons],
        unexplained=[mutant for mutant in outcome.survivors if mutant not in reasons],
        stale=[m for m in reasons if m.file in files and m not in survivors],
    )


def read_explanations(text: str) -> dict[Mutant, str]:
    """The mutants that are the right program in other words, each with the reason."""
    reasons = {}
    for entry in tomllib.loads(text).get("mutant", []):
        reason = entry.pop("why")
        if not reason.strip():
            raise ValueError(f"an explanation has to say why: {entry}")
        reasons[Mutant(**entry)] = reason
    return reasons


def as_entry(mutant: Mutant) -> str:
    """A survivor as it would stand among the explanations."""
    fields = [f"{name} = {literal(text)}" for name, text in vars(mutant).items()]
    return "\n".join(["[[mutant]]", *fields])


def literal(text: str) -> str:
    """A string of TOML that needs no escape where that can be had."""
    if "'" not in text and "\n" not in text:
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False)


def from_diff(file: str, name: str, diff: str) -> Mutant:
    """A mutant from mutmut's name for it, `package.module.x_function__mutmut_3`, and its diff."""
    function = name.rpartition(".")[2].partition("__mutmut_")[0].removeprefix("x_")
    function = function.removeprefix("xǁ").replace("ǁ", ".")
    lines = diff.splitlines()[2:]
    was = [line[1:].strip() for line in lines if line.startswith("-")]
    now = [line[1:].strip() for line in lines if line.startswith("+")]
    return Mutant(file, function, "\n".join(was), "\n".join(now))


# Running


def run(part: Part, *, fresh: bool) -> None:
    """Let mutmut work on a part until nothing is left to do."""
    folder = WORK / part.name
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
    copy_project(folder, part)
    forget_what_new_tests_may_notice(folder)
    log = folder / "mutmut.log"
    command = [str(BIN / "mutmut"), "run", "--max-children", str(os.cpu_count() or 1)]
    print(f"{part.name}: mutmut works; its own words go to {log.relative_to(ROOT)}", flush=True)
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        told = time.monotonic()
        while process.poll() is None:
            time.sleep(1)
            if time.monotonic() - told > 60:
                told = time.monotonic()
                print(f"{part.name}: {progress(log)}", flush=True)
    if process.returncode:
        tail = log.read_text(errors="replace").replace("\r", "\n")
        raise SystemExit(f"{tail[-4000:]}\nmutmut stopped: the lines above are its last.")
    check_names(folder)


def progress(log: Path) -> str:
    counts = re.findall(r" (\d+)/(\d+) ", log.read_text(errors="replace"))
    return "{} of {} mutants".format(*counts[-1]) if counts else "the tests run once, unchanged"


def copy_project(folder: Path, part: Part) -> None:
    """Bring the copy up to date, without the files that are gone, and keep times and results."""
    for kept in (folder, folder / "mutants"):
        shutil.rmtree(kept / "tests", ignore_errors=True)
    shutil.rmtree(folder / "mini_attention", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / name, ignore=ignored, dirs_exist_ok=True)
        else:
            shutil.copy2(ROOT / name, folder / name)
    for path in (folder / name for name in part.files):
        times = path.stat()
        path.write_text(undecorated(path.read_text("utf-8")), "utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    settings = {
        "source_paths": ["mini_attention"],
        "only_mutate": [*part.files],
        "also_copy": ["README.md", "book"],  # tests read them
        "pytest_add_cli_args": ["-p", "no:cacheprovider"],
        # The compiler can't see through the switch between a function and its mutants.
        "pytest_add_cli_args_test_selection": [*part.tests, "-k", "not compil and not export"],
        "use_git_change_detection": False,
        "timeout_multiplier": 4.0,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    with (folder / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write("\n".join(["", "[tool.mutmut]", *lines, ""]))


# Decorators: mutmut knows the first two, and below the others nothing can be changed.
LEFT_ALONE = ("staticmethod", "classmethod", "abstractmethod", "cache")


def undecorated(source: str) -> str:
    """The same program for mutmut, which changes nothing below a decorator that it does not know.

    `@decorator` above a function `f` becomes `f = decorator(f)` below it. What a cached function
    returned before a mutant is switched on stays in its cache: that one is left alone.
    """
    lines = source.splitlines()
    tree = ast.parse(source)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef)]
    functions = [node for body in bodies for node in body if isinstance(node, ast.FunctionDef)]
    for node in sorted(functions, key=lambda node: node.lineno, reverse=True):
        decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
        if not decorators or decorators[0] in LEFT_ALONE:
            continue
        decorated = "".join(f"{name}(" for name in decorators) + node.name + ")" * len(decorators)
        lines.insert(node.end_lineno or 0, f"{' ' * node.col_offset}{node.name} = {decorated}")
        del lines[node.decorator_list[0].lineno - 1 : node.lineno - 1]
    return "\n".join(lines) + "\n"


def forget_what_new_tests_may_notice(folder: Path) -> None:
    """After a change of the tests, try the survivors again, and find out anew who tests what."""
    digest = hashlib.sha256()
    for path in sorted((folder / "tests").rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    stamp = folder / "tests.sha256"
    if stamp.exists() and stamp.read_text() == digest.hexdigest():
        return
    (folder / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)
    for path in results(folder):
        stored = json.loads(path.read_text("utf-8"))
        codes = stored["exit_code_by_key"]
        stored["exit_code_by_key"] = {
            name: code if code == FAILED else None for name, code in codes.items()
        }
        path.write_text(json.dumps(stored), "utf-8")
    stamp.write_text(digest.hexdigest())


def check_names(folder: Path) -> None:
    """A test that pytest can't find by its name would make every mutant look noticed."""
    stats = json.loads((folder / "mutants" / "mutmut-stats.json").read_text("utf-8"))
    names = folder / "names.txt"
    names.write_text("\n".join(stats["duration_by_test"]), "utf-8")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", f"@{names}"]
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout[-2000:]}\npytest does not find these tests by their names.")


# Reading the results

DIFFS = """
import json, sys
from mutmut.mutation.diff_apply import get_diff_for_mutant
wanted = json.load(sys.stdin)
print(json.dumps([get_diff_for_mutant(name, path=path) for path, name in wanted]))
"""


def results(folder: Path) -> list[Path]:
    return sorted((folder / "mutants").rglob("*.py.meta"))


def read(folder: Path) -> Outcome:
    noticed: Counter[str] = Counter()
    survived: list[tuple[str, str]] = []
    unfinished = 0
    for path in results(folder):
        file = path.relative_to(folder / "mutants").as_posix().removesuffix(".meta")
        if not (folder / file).exists():
            continue
        for name, code in json.loads(path.read_text("utf-8"))["exit_code_by_key"].items():
            if code is None or code == INTERRUPTED:
                unfinished += 1
            elif code in NOTICED:
                noticed[file] += 1
            else:
                survived.append((file, name))
    done = subprocess.run(
        [sys.executable, "-c", DIFFS],
        cwd=folder,
        input=json.dumps(survived),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    diffs = json.loads(done.stdout)
    mutants = [from_diff(*who, diff) for who, diff in zip(survived, diffs, strict=True)]
    return Outcome(noticed, mutants, unfinished)


def together(outcomes: Sequence[Outcome]) -> Outcome:
    noticed: Counter[str] = Counter()
    for outcome in outcomes:
        noticed.update(outcome.noticed)
    survivors = [mutant for outcome in outcomes for mutant in outcome.survivors]
    return Outcome(noticed, survivors, sum(outcome.unfinished for outcome in outcomes))


def report(verdict: Verdict) -> None:
    outcome = verdict.outcome
    explained = Counter(mutant.file for mutant in verdict.explained)
    unexplained = Counter(mutant.file for mutant in verdict.unexplained)
    print(f"{'':36} mutants  noticed  explained  survivors")
    for file in sorted({*outcome.noticed, *explained, *unexplained}):
        counts = outcome.noticed.get(file, 0), explained[file], unexplained[file]
        print(f"{file:36} {sum(counts):7} {counts[0]:8} {counts[1]:10} {counts[2]:10}")
    if verdict.unexplained:
        print(
            "\nNo test notices these. Each needs a test, or a line `why = ` that proves it right:"
        )
        print("\n\n".join(["", *map(as_entry, verdict.unexplained)]))
    if verdict.stale:
        print(f"\nThese lines of {EXPLANATIONS.name} explain no survivor any more:")
        print("\n\n".join(["", *map(as_entry, verdict.stale)]))
    if outcome.unfinished:
        print(
            f"\n{outcome.unfinished} mutants are left to run: the same command goes on with them."
        )
    print(f"\n{verdict.score:.1f} % of the mutants were noticed; {WANTED:.0f} % are wanted")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help="parts, or files as seen from the root; else all")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs found")
    parser.add_argument("--report", action="store_true", help="run nothing")
    given = parser.parse_args(arguments)
    reasons = read_explanations(EXPLANATIONS.read_text("utf-8"))
    asked = [part_of(name) for name in given.names or parts()]
    for part in asked:
        if not given.report:
            run(part, fresh=given.fresh)
    outcome = together([read(WORK / part.name) for part in asked])
    ours = {m.file for m in reasons for part in asked if any(map(Path(m.file).match, part.files))}
    verdict = judge(outcome, reasons, ours if given.names else {m.file for m in reasons})
    report(verdict)
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main())
