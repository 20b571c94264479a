"""What the project declares, held to what is there."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata

import pytest
import yaml
from jupyter_book.config import get_final_config
from packaging.requirements import Requirement
from sphinx.util.matching import compile_matchers

from tools import sphinx_pages, steps

ROOT = steps.ROOT
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements(name):
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    stripped = (re.sub(r"\s*#.*", "", line) for line in lines)
    return [Requirement(line) for line in stripped if line and not line.startswith("-")]


PINNED = requirements("requirements.txt")
HELD = requirements("tools/constraints.txt")


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
    workflow = yaml.safe_load((ROOT / ".github/workflows/book.yml").read_text("utf-8"))
    tested = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
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


# What the API page does to docstrings


def test_shapes_are_set_as_a_table():
    lines = ["One sentence.", "", "    query  ... i d", "    key    ... j d", "", ">>> 1", "1"]
    expected = [*lines[:2], ".. code-block:: none", "", *lines[2:]]
    assert sphinx_pages.as_meant(lines) == expected


def test_names_between_backquotes_are_set_as_code():
    lines = ["`a` and ``b``.", "", ">>> f'`c`'", "", "    d  `e`"]
    expected = ["``a`` and ``b``.", "", ">>> f'`c`'", "", ".. code-block:: none", "", "    d  `e`"]
    assert sphinx_pages.as_meant(lines) == expected


def test_a_wrapped_line_is_no_table():
    lines = ["A list", "- that goes", "    on here.", "", "The end."]
    assert sphinx_pages.as_meant(lines) == lines


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


def test_ci_runs_what_everyone_runs():
    assert (
        (ROOT / ".ci/run")
        .read_text(encoding="utf-8")
        .splitlines()[-1]
        .endswith("make --no-print-directory test")
    )
    assert "run: make test" in (ROOT / ".github/workflows/book.yml").read_text(encoding="utf-8")
