"""What tools/sphinx_pages does to the pages of the book."""

from tools.sphinx_pages import docstrings

# Docstrings


def test_shapes_are_set_as_a_table():
    lines = ["One sentence.", "", "    query  ... i d", "    key    ... j d", "", ">>> 1", "1"]
    expected = [*lines[:2], ".. code-block:: none", "", *lines[2:]]
    assert docstrings.as_meant(lines) == expected


def test_names_between_backquotes_are_set_as_code():
    lines = ["`a` and ``b``.", "", ">>> f'`c`'", "", "    d  `e`"]
    expected = ["``a`` and ``b``.", "", ">>> f'`c`'", "", ".. code-block:: none", "", "    d  `e`"]
    assert docstrings.as_meant(lines) == expected


def test_a_wrapped_line_is_no_table():
    lines = ["A list", "- that goes", "    on here.", "", "The end."]
    assert docstrings.as_meant(lines) == lines
