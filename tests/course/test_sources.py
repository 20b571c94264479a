"""A source is read without mercy, and its solutions stay at home."""

import re

import nbformat
import pytest
from nbclient import NotebookClient

from course import sources
from tests.course import small

SOURCES = sources.all_sources()


def changed(cell, **meta):
    cell.metadata["nbgrader"] |= meta
    return cell


def without(cell, key):
    del cell.metadata["nbgrader"][key]
    return cell


def double(text=small.SOLVED):
    return small.solution("write-double", text)


def graded_double(text=small.TESTED):
    return small.graded("double", text)


def tagged():
    cell = small.code("imports", "import torch")
    cell.metadata["tags"] = ["solution"]
    return cell


def ends_in_a_value():
    cell = graded_double()
    cell.outputs = [nbformat.v4.new_output("execute_result", {"text/plain": "3"})]
    return cell


BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
FAULTS = {
    "a name twice": (
        changed(small.solution("guess", small.GUESSED), grade_id="double"),
        "cell 5 (double) has the grade_id of another cell",
    ),
    "no points": (without(graded_double(), "points"), "needs points above 0; got None"),
    "no worth": (changed(graded_double(), points=0), "needs points above 0; got 0"),
    "points in words": (changed(graded_double(), points="4"), "points above 0; got 4"),
    "points of a yes": (changed(graded_double(), points=True), "points above 0; got True"),
    "points for nothing": (changed(double(), points=3), "has points but is not graded"),
    "unlocked test": (changed(graded_double(), locked=False), "is graded but not locked"),
    "locked solution": (changed(double(), locked=True), "nobody can write the solution"),
    "by hand": (changed(double(), grade=True, points=3), "asks for marks by hand"),
    "a task": (changed(graded_double(), task=True), "asks for marks by hand"),
    "half of it": (without(double(), "task"), "does not say to nbgrader: task"),
    "a checksum": (changed(double(), checksum="0"), "says what nbgrader adds itself: checksum"),
    "old schema": (changed(double(), schema_version=1), "is in nbgrader's schema 1, not 3"),
    "odd name": (changed(double(), grade_id="Double it"), "has the grade_id 'Double it'"),
    "no number": (changed(double(), grade_id=7), "has the grade_id 7"),
    "prose": (
        nbformat.v4.new_markdown_cell(
            "Why?", id="guess", metadata={"nbgrader": small.says("guess", solution=True)}
        ),
        "is no code",
    ),
    "a folded solution": (tagged(), "has the tag solution, but would be handed out"),
    "no markers": (double("def double(x):\n    return 2 * x"), "is a solution without `### BEGIN"),
    "no end": (double(f"{BEGIN}\nx = 1"), "has markers that do not pair"),
    "no begin": (double(f"x = 1\n{END}"), "has markers that do not pair"),
    "two begins": (double(f"{BEGIN}\n{BEGIN}\nx = 1\n{END}\n{END}"), "that do not pair"),
    "no end of two": (double(f"{BEGIN}\n{BEGIN}\nx = 1"), "has markers that do not pair"),
    "crossed": (
        graded_double(f"### BEGIN HIDDEN TESTS\n{END}\n{BEGIN}\n### END HIDDEN TESTS"),
        "has markers that do not pair",
    ),
    "small letters": (double(f"{BEGIN}\nx = 1\n### end solution"), "exactly `### BEGIN ...`"),
    "one hash": (double(f"# BEGIN SOLUTION\nx = 1\n{END}"), "marker that is none"),
    "solution unsaid": (
        small.code("imports", small.GUESSED),
        "cell 2 (imports) has a solution, but does not say so to nbgrader",
    ),
    "solution in a test": (graded_double(small.SOLVED), "has a solution, but does not say so"),
    "hidden tests unsaid": (small.code("imports", small.TESTED), "hidden tests, but is not graded"),
    "all hidden": (
        graded_double("### BEGIN HIDDEN TESTS\nassert 1\n### END HIDDEN TESTS"),
        "has nothing left for students to see",
    ),
    "a value": (ends_in_a_value(), "is a test that ends in a value"),
    "no Python": (double(f"def double(x)\n    {BEGIN}\n    pass\n    {END}"), "is no Python"),
    "a whole function": (
        double(f"{BEGIN}\ndef double(x):\n    return 2 * x\n{END}"),
        "outside of functions that does not only name values",
    ),
    "whole methods": (
        double(f"class Double:\n    {BEGIN}\n    def call(self): pass\n    {END}"),
        "would raise while it is loaded",
    ),
}


@pytest.mark.parametrize(("cell", "message"), FAULTS.values(), ids=FAULTS)
def test_each_fault_of_a_source_is_named(tmp_path, cell, message):
    path = small.write(tmp_path, small.notebook(cell))
    with pytest.raises(sources.SourceError) as caught:
        sources.read(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith("a1_double.ipynb: cell ")


def test_all_faults_are_named_at_once(tmp_path):
    path = small.write(tmp_path, small.notebook(tagged(), changed(graded_double(), points=0)))
    with pytest.raises(sources.SourceError) as caught:
        sources.points(path)
    assert len(str(caught.value).splitlines()) == 2


def test_a_source_has_something_to_grade():
    ungraded = small.notebook(small.code("double", "1"), small.code("guessed", "1"))
    assert list(sources.faults(ungraded)) == ["has no graded cell"]


JUNK = [b"", b"hello", b"[1, 2]", b"\xff\xfe\x00", b'{"cells": []}', b'{"nbformat": 3}']
JUNK += [b'{"nbformat": 4}', b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [1]}']


@pytest.mark.parametrize("junk", JUNK)
def test_a_file_that_is_no_notebook_is_told(tmp_path, junk):
    path = tmp_path / "a1_junk.ipynb"
    path.write_bytes(junk)
    with pytest.raises(sources.SourceError, match=r"^a1_junk\.ipynb "):
        sources.read(path)


def test_points_stand_in_the_notebook_alone(tmp_path):
    path = small.write(tmp_path, small.notebook(small.graded("guessed", small.CHECKED, 2.5)))
    assert sources.points(path) == {"double": 6.0, "guessed": 2.5}


def test_a_check_is_known_as_it_stands_in_the_source_and_as_students_get_it(tmp_path):
    texts = sources.check_texts(small.write(tmp_path, small.notebook()))
    assert texts == {small.TESTED, "assert double(3) == 6", small.CHECKED}


# What students get


def handed_out(*cells):
    return sources.student_notebook(small.notebook(*cells))


def text_of(notebook, name):
    (cell,) = (cell for cell in notebook.cells if cell.id == name)
    return cell.source


def test_a_solution_in_a_function_becomes_an_error_that_says_what_to_do():
    text = 'def double(x):\n    """Twice `x`."""\n    raise NotImplementedError("write this")'
    assert text_of(handed_out(), "write-double") == text


def test_a_solution_outside_of_functions_becomes_a_placeholder_for_each_name():
    text = "# What is twice 7, and its half?\ntwice = ...\nhalf: float = ..."
    assert text_of(handed_out(), "guess") == text


def test_names_that_are_assigned_together_or_twice_get_a_placeholder_each():
    cell = small.solution("guess", f"{BEGIN}\na, (b, *c) = x = f(y)\nz = [1]\nz[y] = 2\n{END}")
    assert set(text_of(handed_out(cell), "guess").split("\n")) == {
        f"{name} = ..." for name in "abcxz"
    }


def test_what_stands_around_a_solution_stays_as_it_is():
    before, after = "class A:\n    def f(self):\n        y = 1\n", "\n        return y"
    cell = double(f"{before}        {BEGIN}\n        y = 2\n        {END}{after}")
    stub = '        raise NotImplementedError("write this")'
    assert text_of(handed_out(cell), "write-double") == before + stub + after


def test_hidden_tests_are_not_handed_out():
    assert text_of(handed_out(), "double") == "assert double(3) == 6"
    assert "-5" not in nbformat.v4.writes(handed_out())


def test_outputs_and_counts_are_cleared():
    cell = small.code("imports", "print(1)")
    cell.outputs = [nbformat.v4.new_output("stream", text="1\n")]
    for each in handed_out(cell).cells:
        assert each.get("outputs", []) == []
        assert each.get("execution_count") is None


def test_a_source_is_not_written_to():
    source = small.notebook()
    before = nbformat.v4.writes(source)
    sources.student_notebook(source)
    assert nbformat.v4.writes(source) == before


def test_students_can_not_delete_what_is_graded_nor_edit_it_by_accident():
    metas = [cell.metadata for cell in handed_out().cells]
    told = [(meta.get("deletable"), meta.get("editable")) for meta in metas]
    solved, tested = (False, None), (False, False)
    text = (None, None)
    assert told == [text, text, text, solved, tested, text, solved, tested]


def test_a_students_notebook_is_valid_and_names_the_kernel_that_everyone_has():
    notebook = handed_out()
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"


def test_nbgrader_is_told_what_it_would_write_itself():
    """The digests are those of nbgrader 0.9.6 for these very cells: see tests/nbgrader."""
    digests = [sources.said(cell).get("checksum") for cell in handed_out().cells]
    assert digests[3:5] == ["1d615d8c623c03669d30e7a26dbff93e", "1770f70c32ea9ed6cabcb5bff6638734"]


# Writing


def test_the_same_source_makes_the_same_bytes(tmp_path, capsys):
    source = small.write(tmp_path, small.notebook())
    assert sources.write_students(folder=tmp_path) == 0
    path = tmp_path / "student" / source.name
    first = path.read_bytes()
    assert sources.write_students(folder=tmp_path) == 0
    assert path.read_bytes() == first
    assert sources.write_students(check=True, folder=tmp_path) == 0
    assert capsys.readouterr().out.splitlines() == [
        "student/a1_double.ipynb: written",
        "student/a1_double.ipynb: unchanged",
        "student/a1_double.ipynb: unchanged",
    ]


def test_a_check_writes_nothing_and_says_what_to_run(tmp_path, capsys):
    small.write(tmp_path, small.notebook())
    assert sources.write_students(check=True, folder=tmp_path) == 1
    assert "run `python -m course student`" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["a1_double.ipynb"]


def test_a_student_notebook_that_was_changed_is_told_and_mended(tmp_path):
    source = small.write(tmp_path, small.notebook())
    sources.write_students(folder=tmp_path)
    path = tmp_path / "student" / source.name
    path.write_text(path.read_text().replace("write this", "cheat here"))
    assert sources.write_students(check=True, folder=tmp_path) == 1
    assert sources.write_students(folder=tmp_path) == 0
    assert "cheat here" not in path.read_text()


def test_one_bad_source_costs_the_others_nothing(tmp_path, capsys):
    small.write(tmp_path, small.notebook(changed(double(), locked=True)), "a1_bad.ipynb")
    small.write(tmp_path, small.notebook(), "a2_good.ipynb")
    assert sources.write_students(folder=tmp_path) == 1
    assert [path.name for path in (tmp_path / "student").iterdir()] == ["a2_good.ipynb"]
    assert "a1_bad.ipynb: cell 4 (write-double) is locked" in capsys.readouterr().out


def test_a_student_notebook_of_no_source_is_told(tmp_path, capsys):
    (tmp_path / "student").mkdir()
    small.write(tmp_path / "student", small.notebook(), "a9_old.ipynb")
    assert sources.write_students(check=True, folder=tmp_path) == 1
    assert capsys.readouterr().out == "student/a9_old.ipynb has no source: remove it\n"


# The assignments


def run(notebook, folder):
    """The notebook with the outputs of all its cells, whatever they raise."""
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        allow_errors=True,
        resources={"metadata": {"path": str(folder)}},
    )
    return client.execute()


def raised(cell):
    return [
        (output.ename, output.evalue)
        for output in cell.get("outputs", [])
        if output.output_type == "error"
    ]


def test_the_students_notebooks_are_what_the_command_makes(capsys):
    assert sources.write_students(check=True) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.full if number else [])
        for number, path in enumerate(SOURCES)
    ],
)
def test_a_students_notebook_begins_with_every_part_failing_in_a_friendly_way(path, tmp_path):
    notebook = run(sources.student_notebook(sources.read(path)), tmp_path)
    for cell in notebook.cells:
        errors = raised(cell)
        if sources.said(cell).get("grade"):
            ((name, message),) = errors
            assert name in ("CheckFailed", "NotImplementedError"), (cell.id, message)
            assert re.search(r"not \w+ yet|write this", message, re.I), (cell.id, message)
        else:
            assert {name for name, _ in errors} <= {"NotImplementedError"}, (cell.id, errors)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_an_assignment_is_worth_20_points_and_says_so(path):
    assert sum(sources.points(path).values()) == 20
    assert "20 points" in sources.read(path).cells[0].source
