"""What the project declares, held to what is there."""

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata

import nbformat
import pytest
import torch
import yaml
from jupyter_book.config import get_final_config
from packaging.requirements import Requirement
from sphinx.util.matching import compile_matchers

from tools import browser, mutation, rules, steps, stored

ROOT = steps.ROOT
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements(name):
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    stripped = (re.sub(r"\s*#.*", "", line) for line in lines)
    read = [Requirement(line) for line in stripped if line and not line.startswith("-")]
    return [needed for needed in read if needed.marker is None or needed.marker.evaluate()]


PINNED = requirements("requirements.txt")
HELD = requirements("tools/constraints.txt")
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text("utf-8"))
    for path in (ROOT / ".github/workflows").glob("*.yml")
}


@pytest.mark.parametrize("pin", PINNED, ids=str)
def test_the_tests_run_with_what_is_pinned(pin):
    """A failure means an environment of another day: `make` brings it up to date."""
    assert [specifier.operator for specifier in pin.specifier] == ["=="]
    assert pin.specifier.contains(metadata.version(pin.name))


def test_every_pin_says_why():
    for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines():
        assert "==" not in line or re.search(r"  # \S", line), line


def test_what_the_package_needs_is_pinned_within_its_range():
    pins = {pin.name: next(iter(pin.specifier)).version for pin in PINNED}
    extras = PROJECT["optional-dependencies"].values()
    for line in [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]:
        needed = Requirement(line)
        assert needed.specifier.contains(pins[needed.name])


def test_nothing_is_pinned_in_two_places():
    assert not {pin.name.lower() for pin in PINNED} & {pin.name.lower() for pin in HELD}


def test_the_last_requirement_is_the_package_itself():
    assert (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()[-1] == "-e ."


def test_the_pythons_declared_are_those_that_are_tested():
    tested = WORKFLOWS["book"]["jobs"]["test"]["strategy"]["matrix"]["python"]
    named = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if ":: 3." in c]
    assert tested == named == ["3.11", "3.12", "3.13"]
    range_ = Requirement(f"python{PROJECT['requires-python']}").specifier
    assert [minor for minor in range(20) if f"3.{minor}" in range_] == [11, 12, 13]


def test_the_package_needs_torch_and_einops_alone():
    code = "import sys, mini_attention, mini_attention.plots; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert [Requirement(line).name for line in PROJECT["dependencies"]] == ["torch", "einops"]


# Jupyter Book ignores a key of _config.yml that it does not know: here is what Sphinx gets.
EXPECTED = {
    "nb_execution_mode": "force",
    "nb_execution_raise_on_error": True,
    "nb_output_stderr": "error",
    "nb_execution_timeout": 300,
    "nb_render_markdown_format": "gfm",
    "external_toc_exclude_missing": True,
    "html_title": "Attention from the formula up",
    "author": "The mini_attention authors",
    "copyright": "2026",
    "language": "en",
    "mathjax_path": "mathjax/tex-svg.js",
    "html_static_path": ["book/_static"],
    "bibtex_bibfiles": ["book/references.bib"],
}


@pytest.fixture(scope="module")
def sphinx_config():
    config, _ = get_final_config(
        user_yaml=ROOT / "_config.yml",
        cli_config={"latex_individualpages": False},
        sourcedir=ROOT,
        raise_on_invalid=True,
    )
    return config


@pytest.mark.parametrize(("key", "value"), EXPECTED.items(), ids=EXPECTED)
def test_a_setting_reaches_sphinx(sphinx_config, key, value):
    assert sphinx_config[key] == value


def test_the_book_builds_nothing_beside_its_pages(sphinx_config):
    excluded = compile_matchers(sphinx_config["exclude_patterns"])
    for path in [".venv/lib/a.md", ".pytest_cache/README.md", "tests/a.md", "README.md"]:
        folders = [path[: found.start()] for found in re.finditer("/", path)]
        assert any(match(part) for match in excluded for part in [*folders, path]), path
    assert "sphinx_thebe" not in sphinx_config["extensions"]


def test_no_script_or_style_is_put_on_every_page_by_accident(sphinx_config):
    assert sphinx_config.get("html_js_files", []) == []
    assert sphinx_config["html_css_files"] == ["book.css"]


# make book, make test


def python(code):
    return (sys.executable, "-c", code)


@pytest.mark.parametrize(
    ("code", "expected"), [("", "1 passed, 0 failed"), ("1/0", "0 passed, 1 failed")]
)
def test_a_step_counts_as_one_check(code, expected):
    assert str(steps.run(steps.Step("try", python(code), "mend it"))) == expected


def test_a_step_that_fails_shows_its_output_and_the_remedy(capsys):
    steps.run(steps.Step("try", python("raise SystemExit('broken pipe')"), "mend the pipe"))
    shown = capsys.readouterr().out
    assert "broken pipe" in shown
    assert "try failed: mend the pipe" in shown


def test_a_complaint_about_a_notebook_leaves_out_how_sphinx_came_to_it():
    output = (
        "[IPKernelApp] WARNING | Careful.\n"
        "Traceback (most recent call last):\n  File sphinx.py\n"
        "nbclient.exceptions.CellExecutionError: An error occurred here:\n\x1b[31m1/0\x1b[0m\n\n"
        "The above exception was the direct cause of the following exception:\n"
        "  File more_sphinx.py\nmyst_nb.core.ExecutionError: book/a.ipynb\n"
    )
    assert steps.complaint(output) == "book/a.ipynb\nAn error occurred here:\n1/0"
    assert (
        steps.complaint("[IPKernelApp] WARNING | x\na.md:3: WARNING: y\n") == "a.md:3: WARNING: y"
    )


SUITES = {
    "all pass": ("def test_a(): pass\ndef test_b(): pass", "2 passed, 0 failed"),
    "one fails": ("def test_a(): pass\ndef test_b(): assert 0", "1 passed, 1 failed"),
    "one is skipped": (
        "import pytest\ndef test_a(): pass\n@pytest.mark.skip\ndef test_b(): pass",
        "1 passed, 0 failed, 1 skipped",
    ),
    "none": ("", "0 passed, 1 failed"),
    "none can be read": ("1 +", "0 passed, 1 failed"),
}


@pytest.mark.parametrize(("source", "expected"), SUITES.values(), ids=SUITES)
def test_a_step_of_pytest_counts_its_tests(monkeypatch, tmp_path, source, expected):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take seconds to load
    file = tmp_path / "test_it.py"
    file.write_text(source)
    command = steps.module(
        "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(file)
    )
    assert str(steps.run(steps.Step("try", command, "mend it", is_pytest=True))) == expected


def test_the_last_line_adds_up_and_the_exit_code_follows(monkeypatch, capsys):
    good = steps.Step("good", python(""), "")
    bad = steps.Step("bad", python("1/0"), "mend it")
    monkeypatch.setattr(steps, "TEST", (good, bad, good))
    assert steps.run_test() == 1
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 1 failed"
    monkeypatch.setattr(steps, "TEST", (good, good))
    assert steps.run_test() == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 0 failed"


def test_the_book_is_built_strictly_and_from_nothing(monkeypatch, tmp_path):
    assert {"--all", "-W", "-n", "--keep-going"} <= set(steps.BOOK.command)
    (tmp_path / "_build" / ".doctrees").mkdir(parents=True)
    monkeypatch.setattr(steps, "BUILD", tmp_path / "_build")
    steps.forget_builds()
    assert not (tmp_path / "_build").exists()


def test_the_book_runs_its_notebooks_and_fails_with_one(tmp_path):
    """What is stored looks well: only who runs it can tell."""
    cells = [nbformat.v4.new_markdown_cell("# A", id="a"), nbformat.v4.new_code_cell("1/0", id="b")]
    cells[1] |= {"execution_count": 1, "outputs": [nbformat.v4.new_output("stream", text="fine")]}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=rules.NOTEBOOK_METADATA)
    nbformat.write(notebook, tmp_path / "a.ipynb")
    execute = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["execute"]
    (tmp_path / "_config.yml").write_text(yaml.safe_dump({"execute": execute}), "utf-8")
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: a\n", "utf-8")
    done = subprocess.run(
        steps.BOOK.command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "ZeroDivisionError" in done.stdout + done.stderr


def test_pages_are_made_of_stored_outputs_which_are_compared():
    assert steps.STORED in steps.TEST
    (notebooks,) = (step for step in steps.TEST if step.name == "notebooks")
    assert "--nbval" in notebooks.command


WAIT = """import pathlib, sys, time
file, tries = pathlib.Path({!r}), 6000
while not file.exists() and (tries := tries - 1):
    time.sleep(0.01)
sys.exit(not tries)"""


def test_steps_of_one_process_run_at_once_and_are_told_in_order(monkeypatch, capsys, tmp_path):
    file = str(tmp_path / "written")
    first, second = python(WAIT.format(file)), python(f"open({file!r}, 'w').close()")
    pair = (steps.Step("first", first, ""), steps.Step("second", second, ""))
    monkeypatch.setattr(steps, "TEST", pair)
    assert steps.run_test() == 0
    told = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert told == ["first", "second", "2"]


# The browser checks


def test_a_step_that_lacks_something_is_skipped_and_says_what(capsys):
    step = steps.Step("try", python("1/0"), "", lacking=lambda: "no ruler here: buy one")
    assert str(steps.run(step)) == "0 passed, 0 failed, 1 skipped"
    assert capsys.readouterr().out == "try        skipped: no ruler here: buy one\n"


def test_the_pages_are_looked_at_when_they_are_built():
    (tests,) = (step for step in steps.TEST if step.name == "tests")
    order = [steps.TEST.index(step) for step in (steps.STORED, tests, steps.BROWSER)]
    assert order == sorted(order)
    assert ROOT / steps.BROWSER.command[-1] == stored.PAGES
    assert ROOT / tests.environment["BUILT_PAGES"] == stored.PAGES
    assert steps.STORED.environment == steps.BROWSER.environment


@pytest.mark.parametrize("command", [steps.run_browser, steps.run_screenshots])
def test_who_asks_for_a_browser_and_has_none_is_told(monkeypatch, capsys, command):
    lacking = lambda: "no browser"
    monkeypatch.setattr(steps, "BROWSER", steps.Step("try", (), "", lacking=lacking))
    monkeypatch.setattr(steps, "SCREENSHOTS", steps.Step("try", (), "", lacking=lacking))
    assert command() == 1
    assert capsys.readouterr().err == "no browser\n"


def test_a_browser_is_found_on_the_path_or_where_installers_put_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(browser, "PROGRAMS", ("%ProgramFiles%/none", f"{tmp_path}/Chrome"))
    monkeypatch.setattr(browser, "TOOLS", ("json",))
    assert browser.find() is None
    assert "apt install chromium" in browser.lacking()
    (tmp_path / "Chrome").touch()
    assert browser.find() == f"{tmp_path}/Chrome"
    assert browser.lacking() is None
    monkeypatch.setattr(browser, "TOOLS", ("json", "nothing_of_this_name"))
    assert "`make browser` does that" in browser.lacking()


PACKAGE = """def f(x):
    if x:
        x = 1
    return x
"""
ONE_WAY = "import mini_attention\ndef test_true(): assert mini_attention.f(1)\n"
BOTH_WAYS = ONE_WAY + "def test_false(): assert not mini_attention.f(0)\n"


@pytest.mark.parametrize(
    ("source", "missing"), [(ONE_WAY, ["2->4"]), (BOTH_WAYS, [])], ids=["one way", "both ways"]
)
def test_a_branch_that_no_test_takes_fails_the_tests(monkeypatch, tmp_path, source, missing):
    settings = (ROOT / "pyproject.toml").read_text("utf-8").partition("[tool.coverage.run]")
    (tmp_path / "pyproject.toml").write_text(settings[1] + settings[2])
    (tmp_path / "mini_attention.py").write_text(PACKAGE)
    (tmp_path / "test_it.py").write_text(source)
    (step,) = (step for step in steps.TEST if step.name == "tests")
    command = [*step.command, "-n", "0", "--rootdir", ".", "-p", "xdist", "-p", "pytest_cov"]
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the others take seconds to load
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == bool(missing)
    assert re.findall(r"\d->\d", done.stdout) == missing


# The weekly workflow


def test_a_step_runs_with_the_processor_and_threads_that_it_names():
    for step in steps.as_on("avx2", threads=2, workers=1):
        told = "import os; assert os.environ['ATEN_CPU_CAPABILITY'] + os.environ['OMP_NUM_THREADS']"
        alone = steps.Step("try", python(told + " == 'avx22'"), "", environment=step.environment)
        assert steps.run(alone).passed == 1


def test_every_processor_runs_tests_and_notebooks_with_one_thread_and_with_two(monkeypatch, capsys):
    monkeypatch.setattr(steps, "instruction_sets", lambda: ("default", "avx2"))
    ran = []
    monkeypatch.setattr(steps, "run", lambda step: ran.append(step) or steps.Count(3))
    assert steps.run_processors() == 0
    assert {tuple(step.environment.values()) for step in ran} == {
        (name, threads) for name in ("default", "avx2") for threads in "12"
    }
    assert ["--nbval" in step.command for step in ran] == [False, True] * 4
    assert capsys.readouterr().out.splitlines()[-1] == "24 passed, 0 failed"


def test_one_failure_on_one_processor_fails_them_all(monkeypatch):
    monkeypatch.setattr(steps, "instruction_sets", lambda: ("default",))
    counts = iter([steps.Count(3), steps.Count(3), steps.Count(3), steps.Count(2, 1)])
    monkeypatch.setattr(steps, "run", lambda step: next(counts))
    assert steps.run_processors() == 1


@pytest.mark.parametrize(
    ("native", "expected"),
    [
        ("DEFAULT", ("default",)),
        ("AVX2", ("default", "avx2")),
        ("AVX512", ("default", "avx2", "avx512")),
        ("SVE256", ("default", "sve256")),
    ],
)
def test_a_processor_can_play_those_before_it(monkeypatch, native, expected):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: native)
    assert steps.instruction_sets() == expected


def test_another_torch_is_held_to_all_tests_of_the_package():
    left_out = [word.partition("=")[2] for word in steps.PACKAGE.command if "--ignore" in word]
    assert tuple(left_out) == steps.ELSEWHERE
    assert {"tests/test_book.py", "tests/test_project.py", "tests/course"} <= set(left_out)
    assert all((ROOT / file).exists() for file in left_out)
    assert "-m" not in steps.PACKAGE.command[3:]  # the slow ones too
    package = (ROOT / "mini_attention").iterdir()
    mirrored = {path.stem for path in package if path.is_dir() or path.suffix == ".py"}
    of_the_package = {f"tests/test_{name}.py" for name in mirrored}
    # whether the wrong programs are noticed, an hour's work, is asked by a tool
    assert of_the_package & set(left_out) == {"tests/test_mistakes.py"}


def test_both_ends_of_the_declared_range_of_torch_are_tested():
    matrix = WORKFLOWS["scheduled"]["jobs"]["torch"]["strategy"]["matrix"]["include"]
    (declared,) = (line for line in PROJECT["dependencies"] if line.startswith("torch"))
    oldest = declared.replace(">=", "==") + ".*"
    assert [entry["torch"] for entry in matrix] == [oldest, "torch"]
    assert [entry["python"] for entry in matrix] == ["3.11", "3.13"]


@pytest.mark.parametrize("folder", ["tests/browser", "tests/frameworks", "tests/nbgrader"])
def test_plain_pytest_leaves_out_the_tests_that_need_an_environment_of_their_own(
    pytestconfig, folder
):
    assert (ROOT / folder).is_dir()
    assert folder in pytestconfig.getini("norecursedirs")


# The mutation tester

DIFF = """--- a.py
+++ a.py
@@ -1,3 +1,3 @@
 def f(x):
-    return x + 1
+    return x - 1
"""
MUTANT = mutation.Mutant("mini_attention/a.py", "f", "return x + 1", "return x - 1")


def outcome(*survivors, noticed=20, unfinished=0):
    return mutation.Outcome({"mini_attention/a.py": noticed}, survivors, unfinished)


def test_a_mutant_is_known_by_what_it_changes():
    for number in (3, 14):
        name = f"mini_attention.a.x_f__mutmut_{number}"
        assert mutation.from_diff("mini_attention/a.py", name, DIFF) == MUTANT
    method = mutation.from_diff("a.py", "a.xǁClassǁ_f__mutmut_3", DIFF)
    assert method.function == "Class._f"


def test_an_entry_is_read_as_it_was_printed():
    quotes = mutation.Mutant("a.py", "f", "x = 'a'\ny", 'x = "\\n"')
    for mutant in (MUTANT, quotes):
        text = mutation.as_entry(mutant) + "\nwhy = 'because'\n"
        assert mutation.read_explanations(text) == {mutant: "because"}


def test_an_explanation_without_a_reason_is_none():
    with pytest.raises(ValueError, match="has to say why"):
        mutation.read_explanations(mutation.as_entry(MUTANT) + "\nwhy = ' '\n")


def test_an_unexplained_survivor_fails_and_an_explained_one_does_not(capsys):
    files = [MUTANT.file]
    verdict = mutation.judge(outcome(MUTANT), {}, files)
    mutation.report(verdict)
    assert mutation.as_entry(MUTANT) in capsys.readouterr().out
    assert (verdict.good, round(verdict.score, 1)) == (False, 95.2)
    verdict = mutation.judge(outcome(MUTANT), {MUTANT: "so"}, files)
    mutation.report(verdict)
    assert mutation.as_entry(MUTANT) not in capsys.readouterr().out
    assert (verdict.good, verdict.score) == (True, 100)


def test_an_explanation_of_no_survivor_is_stale(capsys):
    verdict = mutation.judge(outcome(), {MUTANT: "so"}, [MUTANT.file])
    mutation.report(verdict)
    assert not verdict.good
    assert "explain no survivor" in capsys.readouterr().out
    assert mutation.judge(outcome(), {MUTANT: "so"}, ["mini_attention/b.py"]).good


def test_mutants_that_have_not_run_are_told_and_count_as_no_success(capsys):
    verdict = mutation.judge(outcome(unfinished=2), {}, [])
    mutation.report(verdict)
    assert not verdict.good
    assert "2 mutants are left" in capsys.readouterr().out
    assert not mutation.judge(outcome(noticed=0), {}, []).good


DECORATED = '''
from functools import cache, lru_cache, wraps

def twice(times):
    def around(function):
        @wraps(function)
        def call(*args):
            return times * function(*args)
        return call
    return around

@lru_cache
@twice(
    times=2,
)
def f(x):
    """Text."""
    return x + 1

class A:
    @property
    def two(self): return 2

    @staticmethod
    def three():
        return 3

@cache
def four():
    return 4
'''


def test_the_copy_of_a_program_has_no_decorator_that_hides_a_function():
    copied = mutation.undecorated(DECORATED)
    assert re.findall(r"^ *@.*", copied, re.MULTILINE) == [
        "        @wraps(function)",
        "    @staticmethod",
        "@cache",
    ]
    for source in (DECORATED, copied):
        program = {}
        exec(source, program)
        assert (program["f"](1), program["f"].__doc__) == (4, "Text.")
        assert program["f"].cache_info().misses == 1
        assert (program["A"]().two, program["A"].three()) == (2, 3)
        assert program["four"]() == 4


def test_new_tests_get_the_survivors_again_and_old_tests_do_not(tmp_path):
    folder = tmp_path / "mutants" / "mini_attention"
    folder.mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    meta, codes = folder / "a.py.meta", {"noticed": 1, "survived": 0, "no test": 33}
    for text, expected in [("1", {"noticed": 1, "survived": None, "no test": None}), ("1", codes)]:
        meta.write_text(json.dumps({"exit_code_by_key": codes}))
        (tmp_path / "tests" / "test_a.py").write_text(text)
        mutation.forget_what_new_tests_may_notice(tmp_path)
        assert json.loads(meta.read_text())["exit_code_by_key"] == expected


def test_every_file_of_the_package_is_in_one_part_and_mistakes_and_cases_are_in_none():
    for path in (ROOT / "mini_attention").rglob("*.py"):
        file = path.relative_to(ROOT)
        mine = [part for part in mutation.parts().values() if any(map(file.match, part.files))]
        left_out = "mistakes" in file.parts or file.stem.endswith("_cases")
        assert len(mine) == (not left_out), file
        if mine:
            one = mutation.part_of(str(file))
            assert (one.files, one.tests) == ((str(file),), mine[0].tests)


def test_what_is_no_part_and_no_file_of_one_is_an_error():
    for name in ("marks", "mini_attention/mistakes/masks.py", "tools/steps.py"):
        with pytest.raises(SystemExit, match="is neither a part"):
            mutation.part_of(name)


def test_a_copy_holds_the_tests_of_today_and_keeps_the_results(tmp_path):
    gone = tmp_path / "mutants" / "tests" / "test_gone.py"
    kept = tmp_path / "mutants" / "mini_attention" / "masks.py.meta"
    for path in (gone, kept):
        path.parent.mkdir(parents=True)
        path.touch()
    for _ in range(2):
        mutation.copy_project(tmp_path, mutation.part_of("mini_attention/masks.py"))
    assert (gone.exists(), kept.exists()) == (False, True)
    settings = tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))["tool"]["mutmut"]
    assert settings["only_mutate"] == ["mini_attention/masks.py"]
    assert all((tmp_path / name).exists() for name in settings["source_paths"])
    assert "tests/test_masks.py" in settings["pytest_add_cli_args_test_selection"]


def test_parts_add_up():
    other = mutation.Outcome({"mini_attention/b.py": 2, MUTANT.file: 1}, [], 3)
    total = mutation.together([outcome(MUTANT), other])
    assert total.noticed == {"mini_attention/a.py": 21, "mini_attention/b.py": 2}
    assert (total.survivors, total.unfinished) == ([MUTANT], 3)


def test_progress_is_read_from_what_mutmut_prints(tmp_path):
    log = tmp_path / "mutmut.log"
    log.write_text("Running stats...")
    assert mutation.progress(log) == "the tests run once, unchanged"
    log.write_text("\r⠏ 3/163  🎉 3\r⠏ 14/163  🎉 13 🙁 1")
    assert mutation.progress(log) == "14 of 163 mutants"


def test_every_explanation_is_of_a_line_that_is_there():
    for mutant in mutation.read_explanations(mutation.EXPLANATIONS.read_text("utf-8")):
        lines = {line.strip() for line in (ROOT / mutant.file).read_text("utf-8").splitlines()}
        assert set(mutant.was.splitlines()) <= lines


def test_ci_runs_what_everyone_runs():
    assert (
        (ROOT / ".ci/run")
        .read_text(encoding="utf-8")
        .splitlines()[-1]
        .endswith("make --no-print-directory test")
    )
    assert "run: make test" in (ROOT / ".github/workflows/book.yml").read_text(encoding="utf-8")
