"""Put each known mistake in the package's place, and see who notices.

    python -m tools.mistakes suite        the unit tests: at least two kinds have to fail
    python -m tools.mistakes notebooks    nbval alone: a notebook has to turn red

The mistakes are those of `mini_attention.mistakes`. Each runs in a process of its own, where it
takes the place of the right program before a test or a notebook imports it. Its control runs
first: the right program in the clothes of the wrong one. What fails there catches nothing.

Results are kept in .mistakes/, so that an interrupted run goes on where it was; a change of
the package, the tests or the notebooks makes them void.
"""

import argparse
import hashlib
import importlib
import inspect
import json
import multiprocessing
import os
import platform
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FunctionType, ModuleType
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from mini_attention.mistakes import Mistake

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / ".mistakes"

# What kind of test each file holds: two of the same kind may share a blind spot.
KINDS = {
    "tests/test_functional.py": "comparison",  # with a loop and with torch
    "tests/test_contract.py": "contract",
    "tests/test_vectors.py": "outside vectors",
    "tests/test_properties.py": "properties",
    "tests/test_numerics.py": "numbers",
    "tests/test_differentiation.py": "differentiation",
    "tests/test_heads.py": "layers",
    "tests/test_decoding.py": "steps",  # with the whole run
    "tests/test_masks.py": "masks",
    "tests/test_convert.py": "conversion",
    "tests/test_position.py": "positions",
    "tests/test_checks.py": "checks",
    "mini_attention": "examples",  # of the docstrings
}
LEFT_OUT = (
    "--ignore=mini_attention/mistakes",
    "--ignore=mini_attention/plots.py",
    "--ignore=mini_attention/shown.py",
    # Compilers take seconds each; that the checks know the collection is no second opinion on it.
    "-k=not compil and not export and not told_its_mistake and not is_a_note",
)
OPTIONS = (
    "-q",
    "--tb=line",
    "-pno:cacheprovider",
    f"--rootdir={ROOT}",
    "-Wignore::pytest.PytestAssertRewriteWarning",  # plugins are loaded before the fork
)
WITHOUT_NBVAL = "-pno:nbval"  # it takes seconds to load
KINDS_TO_CATCH = 2
SHARE_OF_NOTEBOOKS = 0.9

Programs = Mapping[str, Callable[..., Any]]


# A mistake in the package's place


def install(programs: Programs) -> None:
    """Let every part of the package, but not the mistakes, use these for its public names.

    The doctests of what is replaced stay, as doctests of its module.
    """
    import mini_attention

    replaced = {id(getattr(mini_attention, name)): new for name, new in programs.items()}
    for name in programs:
        right = getattr(mini_attention, name)
        examples = vars(sys.modules[right.__module__]).setdefault("__test__", {})
        examples[name] = inspect.getdoc(right)
    modules = package_modules()
    for function in (function for module in modules for function in functions_of(module)):
        if function.__defaults__:
            function.__defaults__ = tuple(replaced.get(id(v), v) for v in function.__defaults__)
        if function.__kwdefaults__:
            defaults = {k: replaced.get(id(v), v) for k, v in function.__kwdefaults__.items()}
            function.__kwdefaults__ = defaults
    for module in modules:
        for name, value in list(vars(module).items()):
            if id(value) in replaced:
                setattr(module, name, replaced[id(value)])


def package_modules() -> list[ModuleType]:
    """The loaded modules of the package, without those of the mistakes."""
    return [
        module
        for name, module in list(sys.modules.items())
        if name.split(".")[0] == "mini_attention" and not name.startswith("mini_attention.mistakes")
    ]


def functions_of(module: ModuleType) -> Iterator[FunctionType]:
    """The functions of a module and the methods of its classes."""
    for value in vars(module).values():
        for member in vars(value).values() if inspect.isclass(value) else [value]:
            function = getattr(member, "__func__", member)  # of a class or static method
            if isinstance(function, FunctionType):
                yield function


def control_of(mistake: "Mistake") -> Programs:
    """The right program in the clothes of the wrong one: what is left when it is mended."""
    from mini_attention.mistakes.formula import Formula
    from mini_attention.mistakes.layers import Layer

    if inspect.isclass(mistake.source) and issubclass(mistake.source, Layer):
        return dict.fromkeys(mistake.programs, Layer)
    if inspect.isclass(mistake.source) and issubclass(mistake.source, Formula):
        return {name: getattr(Formula(), name) for name in mistake.programs}
    return {}  # it stands beside the right one, which wears no clothes, as a wrong mask does


def put_in_place(name: str, control: bool) -> None:
    """Install a mistake by its name, or its control."""
    from mini_attention.mistakes import MISTAKES

    install(control_of(MISTAKES[name]) if control else MISTAKES[name].programs)


def kernels_with(name: str, control: bool, folder: Path) -> dict[str, str]:
    """The environment in which every kernel installs a mistake before its first cell.

    IPython runs what is in the folder `startup` of its profile, and a variable says where that
    is: nothing is left behind.
    """
    startup = folder / "profile_default" / "startup"
    startup.mkdir(parents=True)
    code = f"from tools.mistakes import put_in_place\nput_in_place({name!r}, {control})\n"
    (startup / "mistake.py").write_text(f"{code}del put_in_place\n", encoding="utf-8")
    paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    return {"IPYTHONDIR": str(folder), "PYTHONPATH": os.pathsep.join(paths)}


# Two nets: who could notice


@dataclass(frozen=True)
class Net:
    """Tests that a mistake could be caught by, and what they depend on."""

    name: str
    files: Callable[[], Iterable[Path]]
    kind_of: Callable[[str], str]
    arguments: Callable[["Mistake"], Sequence[str]]
    modules: tuple[str, ...]  # what is slow to import
    in_kernels: bool = False
    enough: int | None = None  # kinds that notice, after which the rest is not asked any more


def kind_of_test(test: str) -> str:
    file = test.split("::")[0]
    return KINDS.get(file) or KINDS[file.split("/")[0]]


def notebook_of_cell(test: str) -> str:
    return Path(test.split("::")[0]).stem


def notebooks() -> list[Path]:
    """Those that are read: neither assignments, another question, nor the museum: it knows all."""
    found = (ROOT / "book").glob("*.ipynb")
    return sorted(path for path in found if not path.name.startswith("museum"))


def notebooks_for(mistake: "Mistake") -> list[str]:
    """The notebooks, those first whose cells say the names that are replaced most often."""
    name = re.compile(rf"\b({'|'.join(mistake.programs)})\b")

    def mentions(path: Path) -> int:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        return len(name.findall("\n".join(code)))

    paths = sorted(notebooks(), key=mentions, reverse=True)
    return [str(path.relative_to(ROOT)) for path in paths]


def package_files() -> Iterator[Path]:
    """What all mistakes depend on: not the others, whose own file comes to each."""
    wrong = ROOT / "mini_attention" / "mistakes"
    yield ROOT / "pyproject.toml"
    yield from (p for p in (ROOT / "mini_attention").rglob("*.py") if wrong not in p.parents)


def test_files() -> Iterator[Path]:
    """The tests that are run, and what they use."""
    for path in (ROOT / "tests").glob("*.py"):
        if not path.name.startswith("test_") or f"tests/{path.name}" in KINDS:
            yield path


SUITE = Net(
    "suite",
    lambda: [*package_files(), *test_files()],
    kind_of_test,
    lambda mistake: [WITHOUT_NBVAL, *KINDS, *LEFT_OUT],
    ("einops", "hypothesis", "onnx.backend.test"),
    enough=KINDS_TO_CATCH,
)
NOTEBOOKS = Net(
    "notebooks",
    lambda: [*package_files(), *notebooks()],
    notebook_of_cell,
    lambda mistake: ["--nbval", *notebooks_for(mistake)],
    ("nbval.plugin",),
    in_kernels=True,
    enough=1,
)


# One run: the tests with one mistake, or one control, in place


@dataclass(frozen=True)
class Run:
    name: str
    mistake: str  # whose programs, or whose control
    fingerprint: str
    control: bool = False


@dataclass
class Result:
    """What became of a run: the tests that failed, by kind, unless it did not get to its end."""

    name: str
    fingerprint: str
    ended: str = "finished"  # or "crashed", or "timed out"
    failed: dict[str, list[str]] = field(default_factory=dict)
    note: str = ""


class Recorder:
    """A plugin of pytest that writes down what fails, and asks a kind no more once it has."""

    def __init__(
        self, record: IO[str], net: Net, ignored: Collection[str], *, control: bool = False
    ) -> None:
        self.record, self.net, self.ignored, self.control = record, net, ignored, control
        self.kinds: set[str] = set()

    def pytest_sessionstart(self, session: "pytest.Session") -> None:
        self.session = session

    def pytest_collection_finish(self) -> None:
        """A failure is enough here: its smallest example would take many times as long."""
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("unshrunk", settings.default, phases=phases)
        settings.load_profile("unshrunk")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.skipped = not self.control and self.net.kind_of(nodeid) in self.kinds

    def pytest_runtest_setup(self, item: "pytest.Item") -> None:
        import pytest

        if self.skipped:
            pytest.skip("this kind of test has noticed already")

    def pytest_runtest_logreport(self, report: "pytest.TestReport") -> None:
        # An error before the test itself, as of a kernel that does not start, is no finding.
        if report.when != "call" or not report.failed or report.nodeid in self.ignored:
            return
        self.kinds.add(self.net.kind_of(report.nodeid))
        print(json.dumps(report.nodeid), file=self.record, flush=True)
        if not self.control and len(self.kinds) == self.net.enough:
            self.session.shouldfail = "enough have noticed"


def in_child(net: Net, run: Run, ignored: Collection[str], folder: Path) -> None:
    """Run the tests in this process, with the mistake in place, and record how that goes."""
    import pytest

    from mini_attention.mistakes import MISTAKES

    os.chdir(ROOT)
    with (folder / "log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    if net.in_kernels:
        os.environ.update(kernels_with(run.mistake, run.control, folder / "ipython"))
    else:
        put_in_place(run.mistake, run.control)
    with (folder / "record").open("w") as record:
        recorder = Recorder(record, net, ignored, control=run.control)
        code = pytest.main([*OPTIONS, *net.arguments(MISTAKES[run.mistake])], [recorder])
        print(json.dumps({"exit": int(code)}), file=record, flush=True)


def read_result(net: Net, run: Run, folder: Path) -> Result:
    """What a process left behind. Without the exit code of pytest it did not get to its end."""
    result = Result(run.name, run.fingerprint, ended="crashed")
    with suppress(FileNotFoundError):
        for line in (folder / "record").read_text().splitlines():
            entry = json.loads(line)
            if isinstance(entry, str):
                tests = result.failed.setdefault(net.kind_of(entry), [])
                tests += [entry] if entry not in tests else []
            elif entry["exit"] in (0, 1):  # all passed, or some failed; not: could not be run
                result.ended = "finished"
    if result.ended == "crashed":
        with suppress(FileNotFoundError):
            result.note = "\n".join((folder / "log").read_text().splitlines()[-12:])
    return result


@dataclass
class Running:
    run: Run
    process: BaseProcess
    folder: tempfile.TemporaryDirectory[str]
    begin: float


def run_all(
    net: Net,
    runs: Iterable[Run],
    ignored: Callable[[Run], Collection[str]],
    *,
    jobs: int,
    timeout: float,
) -> Iterator[Result]:
    """Run each in a process forked from this one, which has loaded torch and pytest already."""
    waiting, running = list(runs), list[Running]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(start(net, waiting.pop(0), ignored))
            wait([one.process.sentinel for one in running], timeout=1)
            for one in list(running):
                ended = not one.process.is_alive()
                if ended or time.monotonic() - one.begin > timeout:
                    running.remove(one)
                    yield finish(net, one, ended)
    finally:
        for one in running:
            stop(one)
            one.folder.cleanup()


def start(net: Net, run: Run, ignored: Callable[[Run], Collection[str]]) -> Running:
    folder = tempfile.TemporaryDirectory(prefix="mistake-", ignore_cleanup_errors=True)
    process = multiprocessing.get_context("fork").Process(
        target=in_child, args=(net, run, ignored(run), Path(folder.name))
    )
    process.start()
    return Running(run, process, folder, time.monotonic())


def finish(net: Net, one: Running, ended: bool) -> Result:
    stop(one)
    result = read_result(net, one.run, Path(one.folder.name))
    if not ended:
        result.ended = "timed out"
    elif result.ended == "crashed":
        result.note = f"{result.note}\nexit code {one.process.exitcode}".strip()
    one.folder.cleanup()
    return result


def stop(one: Running) -> None:
    if one.process.is_alive():
        assert one.process.pid is not None
        os.kill(one.process.pid, signal.SIGKILL)  # kernels end when their parent is gone
    one.process.join()


# What has been run already


def fingerprint(net: Net, mistake: "Mistake") -> str:
    """A hash of all that the result of a run depends on."""
    import torch

    program = Path(inspect.getfile(mistake.source))
    versions = f"{platform.python_version()} {torch.__version__}"
    digest = hashlib.sha256(f"{versions} {net.arguments(mistake)}".encode())
    for path in sorted({*net.files(), program}):
        digest.update(f"{path.name}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def stored(net: Net) -> dict[tuple[str, str], Result]:
    with suppress(FileNotFoundError):
        lines = (STORE / f"{net.name}.jsonl").read_text(encoding="utf-8").splitlines()
        results = [Result(**json.loads(line)) for line in lines]
        return {(one.name, one.fingerprint): one for one in results if one.ended == "finished"}
    return {}


def store(net: Net, result: Result) -> None:
    STORE.mkdir(parents=True, exist_ok=True)
    with (STORE / f"{net.name}.jsonl").open("a", encoding="utf-8") as file:
        print(json.dumps(asdict(result)), file=file)


def results_of(
    net: Net,
    runs: Sequence[Run],
    ignored: Callable[[Run], Collection[str]],
    *,
    again: bool = False,
    **options: Any,
) -> dict[str, Result]:
    """The results of all runs, those of before unless `again`, with a line for each new one."""
    before = {} if again else stored(net)
    known = {run.name: before.get((run.name, run.fingerprint)) for run in runs}
    done = {name: result for name, result in known.items() if result}
    missing = [run for run in runs if run.name not in done]
    for result in run_all(net, missing, ignored, **options):
        store(net, result)
        done[result.name] = result
        kinds = ", ".join(result.failed) or "nobody"
        print(f"{len(done)}/{len(runs)}  {result.name}: {result.ended}; {kinds}", flush=True)
    return done


# The judgement


def noticed_by(result: Result, control: Result) -> dict[str, list[str]]:
    """The tests that notice a mistake, by kind: they fail with it and pass with its control.

    A run that did not get to its end tells nothing, whatever had failed until then.
    """
    if result.ended != "finished":
        return {}
    passed_only = {
        kind: [test for test in tests if test not in control.failed.get(kind, ())]
        for kind, tests in result.failed.items()
    }
    return {kind: tests for kind, tests in passed_only.items() if tests}


def is_caught(result: Result, control: Result, kinds: int = KINDS_TO_CATCH) -> bool:
    return len(noticed_by(result, control)) >= kinds


def control_name(mistake: "Mistake") -> str:
    names = ", ".join(control_of(mistake))
    return f"control: the right {names}" if names else "control: nothing replaced"


def measure(
    net: Net, mistakes: Sequence["Mistake"], **options: Any
) -> dict[str, tuple[Result, Result]]:
    """For each mistake its result and that of its control.

    What is slow to import is imported once, before the processes are forked. The tests are not:
    they have to find the mistake when they import.
    """
    for module in ("pytest", *net.modules):
        importlib.import_module(module)
    controls = {control_name(mistake): mistake for mistake in mistakes}
    control_results = results_of(
        net,
        [Run(name, m.name, fingerprint(net, m), control=True) for name, m in controls.items()],
        lambda run: (),
        **options,
    )
    for result in control_results.values():
        if result.ended != "finished":
            raise SystemExit(f"{result.name} {result.ended}: nothing can be told\n{result.note}")

    control = {mistake.name: control_results[control_name(mistake)] for mistake in mistakes}

    def ignored(run: Run) -> set[str]:
        return {test for tests in control[run.name].failed.values() for test in tests}

    results = results_of(
        net, [Run(m.name, m.name, fingerprint(net, m)) for m in mistakes], ignored, **options
    )
    return {name: (results[name], control[name]) for name in results}


def table(
    mistakes: Sequence["Mistake"], results: Mapping[str, tuple[Result, Result]]
) -> Iterator[str]:
    """A line for each mistake and kind, with the first test of the kind that notices."""
    rows = [("mistake", "what is wrong", "noticed by", "first")]
    for mistake in mistakes:
        result, control = results[mistake.name]
        noticed = noticed_by(result, control)
        nobody = "nobody" if result.ended == "finished" else result.ended
        names = (mistake.name, mistake.kind)
        for kind, tests in noticed.items() or [(nobody, [""])]:
            rows.append((*names, kind, tests[0].split("::")[-1]))
            names = ("", "")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


# Commands


def run_suite(net: Net, mistakes: Sequence["Mistake"], **options: Any) -> int:
    results = measure(net, mistakes, **options)
    print(*table(mistakes, results), sep="\n")
    missed = [mistake for mistake in mistakes if not is_caught(*results[mistake.name])]
    caught = len(mistakes) - len(missed)
    print(f"{len(mistakes)} mistakes, {caught} caught by two kinds or more")
    explain(missed, results)
    return 1 if missed else 0


def run_notebooks(net: Net, mistakes: Sequence["Mistake"], **options: Any) -> int:
    results = measure(net, mistakes, **options)
    print(*table(mistakes, results), sep="\n")
    green = [mistake for mistake in mistakes if not is_caught(*results[mistake.name], kinds=1)]
    red = len(mistakes) - len(green)
    print(f"{red} of {len(mistakes)} mistakes turn a notebook red")
    explain(green, results)
    return 1 if red < SHARE_OF_NOTEBOOKS * len(mistakes) else 0


def explain(missed: Sequence["Mistake"], results: Mapping[str, tuple[Result, Result]]) -> None:
    for mistake in missed:
        result, control = results[mistake.name]
        who = ", ".join(noticed_by(result, control)) or "nobody"
        print(f"missed: {mistake.name} ({result.ended}, noticed by {who}). {mistake.what}")
        if result.note:
            print(result.note)


COMMANDS = {"suite": (SUITE, run_suite), "notebooks": (NOTEBOOKS, run_notebooks)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mistakes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--only", action="append", metavar="NAME", help="this mistake (repeatable)")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default: 2)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one mistake")
    parser.add_argument("--all", action="store_true", help="ask every test, though enough noticed")
    parser.add_argument("--again", action="store_true", help="whatever was found before")
    options = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded
    from mini_attention.mistakes import MISTAKES

    if unknown := [name for name in options.only or () if name not in MISTAKES]:
        parser.error(f"no such mistake: {', '.join(unknown)}; they are {', '.join(MISTAKES)}")
    mistakes = [MISTAKES[name] for name in options.only or MISTAKES]
    net, run = COMMANDS[options.command]
    if options.all:
        net = replace(net, name=f"{net.name}-all", enough=None)
    return run(net, mistakes, again=options.again, jobs=options.jobs, timeout=options.timeout)


if __name__ == "__main__":
    sys.exit(main())
