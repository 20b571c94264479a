"""Settings with which nbgrader makes the same notebooks as this course, and keeps its secrets.

The sources work without them as well. To have them, let the file nbgrader_config.py in the folder
of your nbgrader course say where this file lies:

    load_subconfig("/where/this/repository/is/course/nbgrader_config.py")
"""

import sys
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from nbgrader.converters import GenerateAssignment, GenerateFeedback
from nbgrader.preprocessors import ClearSolutions, GetGrades, NbGraderPreprocessor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from course import sources


class Stubs(ClearSolutions):  # type: ignore[misc]
    """The course's stubs: nbgrader's own are the same in a function and outside, where an error
    would leave the names undefined that the tests ask for.
    """

    def _replace_solution_region(self, cell: NotebookNode, language: str) -> bool:
        before, cell.source = cell.source, sources.without_solutions(cell.source)
        return bool(cell.source != before)


class KeepHidden(NbGraderPreprocessor):  # type: ignore[misc]
    """Hidden tests stay hidden in the feedback: nbgrader would show them, and their tracebacks."""

    def preprocess_cell(
        self, cell: NotebookNode, resources: dict[str, Any], cell_index: int
    ) -> tuple[NotebookNode, dict[str, Any]]:
        visible = sources.without_hidden_tests(cell.source)
        if visible != cell.source:
            cell.source = visible
            for output in cell.outputs:
                if output.output_type == "error":
                    output.traceback = [f"{output.ename}: {output.evalue}"]
        return cell, resources


def preprocessors(converter: Any) -> list[Any]:
    return list(converter.class_traits()["preprocessors"].default())


c = get_config()  # type: ignore[name-defined]  # noqa: F821  nbgrader puts it here
c.GenerateAssignment.preprocessors = [
    Stubs if each is ClearSolutions else each for each in preprocessors(GenerateAssignment)
]
c.GenerateFeedback.preprocessors = [
    step
    for each in preprocessors(GenerateFeedback)
    for step in ([each, KeepHidden] if each is GetGrades else [each])
]
