"""What is graded is kept, and shown: as a table, to each student, and for the class."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest

from course import journal, reports
from course.journal import Refused, Result, opened
from course.model import Outcome, Verdict
from course.reports import Paper

PAPER = Paper(
    "Assignment 1: attention",
    {"softmax": "Softmax", "scale": "The scale"},
    {"softmax": 7.0, "scale": 3.0},
)
HINT = """scores: the scale is expected

It looks like this mistake: wrong
  scale.
The scores are divided by d."""
SCRIPT = "<script>alert(1)</script>"


def outcome(hint="", step="right", weight=1):
    return Outcome(step, weight, hint)


def result(student="s05", softmax=7.0, scale=3.0, hint="", **fields):
    verdicts = [
        Verdict("softmax", softmax, 7.0, [outcome()], fields.pop("told", ())),
        Verdict("scale", scale, 3.0, [outcome(hint)]),
    ]
    return Result(student, student, f"{student}.ipynb", verdicts, **fields)


def failed(student="s06", problem="the file is empty"):
    return Result(student, student, f"{student}.ipynb", problem=problem)


def rows(*results):
    text = reports.table(PAPER, results)
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))


class Elements(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.links = [], "", []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("href", "src")]

    def handle_data(self, data):
        self.text += data

    def handle_endtag(self, tag):
        self.text += " " * (tag == "td")


# The table


def test_every_submission_has_a_row():
    table = rows(result(), failed())
    assert [row["student"] for row in table] == ["s05", "s06"]
    assert table[0] == {
        "student": "s05",
        "id": "s05",
        "file": "s05.ipynb",
        "softmax": "7",
        "scale": "3",
        "total": "10",
        "most": "10",
        "remarks": "",
    }


def test_what_was_not_graded_has_no_points_and_says_why():
    (row,) = rows(failed())
    assert (row["total"], row["softmax"], row["remarks"]) == ("", "", "the file is empty")


def test_points_have_two_decimals_at_most():
    (row,) = rows(result(softmax=2.33, scale=0.335))
    assert (row["softmax"], row["scale"], row["total"]) == ("2.33", "0.34", "2.67")


@pytest.mark.parametrize("mark", ["=", "+", "-", "@", "\t"])
def test_no_cell_begins_as_a_formula_does(mark):
    (row,) = rows(result(f"{mark}1+1", remarks=[f"{mark}2"]))
    assert row["student"] == f"'{mark}1+1"
    assert row["file"].startswith("'")
    assert row["remarks"][0] in "'2"  # a tab at the beginning is dropped instead
    assert reports.unguarded(row["student"]) == f"{mark}1+1"


def test_remarks_are_one_line():
    (row,) = rows(result(told=["forbidden:\n  softmax"], remarks=["late"]))
    assert row["remarks"] == "late; softmax: forbidden: softmax"


def test_names_in_any_script_survive():
    assert rows(result("学生五"))[0]["student"] == "学生五"
    assert reports.table(PAPER, []).encode().startswith(b"\xef\xbb\xbf")


# Pages


def test_a_student_sees_points_steps_and_hints():
    page = Elements(reports.feedback(PAPER, result(scale=1.5, hint=HINT, errors=["cell 3: no"])))
    assert "Not graded" not in page.text
    for shown in ("8.5 of 10", "The scale: 1.5 of 3", "✓ right", "✗ right", HINT, "cell 3: no"):
        assert shown in page.text, shown


def test_a_student_without_points_sees_why():
    page = Elements(reports.feedback(PAPER, failed()))
    assert "Not graded: the file is empty" in page.text
    assert "of 10" not in page.text


def test_what_students_write_is_no_markup():
    nasty = result(SCRIPT, hint=SCRIPT, errors=[SCRIPT], remarks=[SCRIPT], told=[SCRIPT])
    feedback, summary = reports.feedback(PAPER, nasty), reports.summary(PAPER, [nasty])
    for page in map(Elements, (feedback, summary)):
        assert "script" not in page.tags
        assert SCRIPT in page.text


def test_pages_are_one_file_each():
    pages = [reports.feedback(PAPER, result()), reports.summary(PAPER, [result(remarks=["x"])])]
    feedback, summary = map(Elements, pages)
    assert feedback.links == []
    assert [link.partition("/")[0] for link in summary.links] == ["feedback"]
    assert all("prefers-color-scheme: dark" in page for page in pages)


def test_the_summary_counts():
    class_of = [result(), result("s06", 2.0, 0.0), result("s07", 7.0, 1.0), failed("s08")]
    text = Elements(reports.summary(PAPER, class_of)).text
    assert "4 submissions, 3 of them graded" in text
    assert "Median 8 of 10" in text
    assert re.search(r"Softmax\s+5.33\s+7\s+2\s+0\s", text)
    assert re.search(r"The scale\s+1.33\s+3\s+1\s+1\s", text)
    assert re.search(r"s08: the file is empty", text)


def test_a_class_of_nobody_has_a_summary():
    assert "0 submissions" in Elements(reports.summary(PAPER, [])).text
    assert "Median" not in Elements(reports.summary(PAPER, [failed()])).text


def test_full_points_are_in_the_last_bar():
    bars = reports.bars([0.0, 0.99, 1.0, 9.5, 10.0], 10.0)
    assert [bar["count"] for bar in bars] == [2, 1, 0, 0, 0, 0, 0, 0, 0, 2]
    assert bars[0]["width"] == bars[9]["width"] == 2 * bars[1]["width"] > 0


def test_the_links_of_the_summary_lead_to_pages(tmp_path):
    reports.write_reports(tmp_path, PAPER, [result("学 5/?#", remarks=["late"]), result()])
    (link,) = Elements((tmp_path / "summary.html").read_text("utf-8")).links
    assert (tmp_path / unquote(link)).is_file()
    assert (tmp_path / "grades.csv").is_file()


def test_pages_of_those_who_are_gone_are_removed(tmp_path):
    reports.write_reports(tmp_path, PAPER, [result("s05"), result("s06")])
    reports.write_reports(tmp_path, PAPER, [result("s06")])
    assert [path.name[:3] for path in (tmp_path / "feedback").iterdir()] == ["s06"]


# Mistakes


def test_a_mistake_is_known_by_the_name_in_its_hint():
    assert reports.mistake(HINT) == "wrong scale"


def test_a_mistake_without_a_name_is_the_same_with_other_numbers():
    hints = ["expected 5, got -0.5\n[1, 2]", "expected 7, got 1.5e-3\n[3, 4]"]
    assert {reports.mistake(hint) for hint in hints} == {"expected …, got … […, …]"}


def test_where_a_mistake_was_made_is_no_part_of_it():
    hint = "f: not written\n  yet\ncell 5, line 3: raise NotImplementedError\n\nMore of it."
    assert reports.mistake(hint) == "not written yet"
    assert reports.mistake("f: wrong\ncell 5, line 3: return x") == "f: wrong"


def test_what_is_not_written_is_one_mistake_of_a_question():
    hints = ["f: not written\n  yet", "guess_1 is still `...`: write your answer in its place."]
    assert {reports.mistake(hint) for hint in hints} == {"not written yet"}


def test_what_a_program_raised_is_its_mistake():
    hint = "two tokens: A head sees both.\n\nraised NameError: name 'f' is not defined\n\nMore."
    assert reports.mistake(hint) == "raised NameError: name 'f' is not defined"


def test_a_number_in_a_name_is_a_part_of_it():
    assert reports.mistake("head_1: expected 5") == "head_1: expected …"


def test_what_is_told_of_several_questions_is_told_once():
    verdicts = [Verdict(name, 0.0, 1.0, [], ["it ended"]) for name in ("softmax", "scale")]
    assert Result("s05", "s05", "x", verdicts).told == ["softmax, scale: it ended"]


def test_common_mistakes_are_counted_once_a_student():
    twice = Verdict("scale", 0.0, 3.0, [outcome(HINT, "one"), outcome(HINT, "two")])
    class_of = [Result(s, s, s, [twice]) for s in ("s05", "s06")] + [result(hint="other")]
    found = reports.common_mistakes(PAPER, class_of)
    assert found == [
        {"count": 2, "question": "The scale", "what": "wrong scale"},
        {"count": 1, "question": "The scale", "what": "other"},
    ]


# The journal


def test_what_is_kept_is_read_again(tmp_path):
    one = result(hint="no", told=["x"], errors=["cell 1: x"])
    with opened(tmp_path, "a1", None, False) as book:
        book.keep(one, "state")
        assert book.known(one, "state").verdicts[1].outcomes[0].hint == "no"
        assert journal.digest(one.points) == journal.digest(book.known(one, "state").points)


def test_what_depends_on_something_else_is_not_known(tmp_path):
    with opened(tmp_path, "a1", None, False) as book:
        assert book.known(result(), "state") is None
        book.keep(result(), "state")
        assert book.known(result(), "other") is None
        assert book.known(result("s06"), "state") is None


@pytest.mark.parametrize(
    "text", ["", "[]", '{"state": "state"}', '{"state": "state", "verdicts": 5}']
)
def test_a_damaged_record_is_not_known(tmp_path, text):
    with opened(tmp_path, "a1", None, False) as book:
        book.keep(result(), "state")
        (path,) = (tmp_path / "graded").glob("*.json")
        path.write_text(text)
        assert book.known(result(), "state") is None


def test_results_are_not_overwritten(tmp_path):
    with opened(tmp_path, "a1", None, False):
        pass
    with pytest.raises(Refused, match=r"--resume .* --out"), opened(tmp_path, "a1", None, False):
        pass


def test_the_seed_stays_the_same_in_a_run(tmp_path):
    with opened(tmp_path / "x", "a1", None, False) as book:
        seed = book.seed
    with opened(tmp_path / "x", "a1", None, True) as book:
        assert book.seed == seed
    with opened(tmp_path / "y", "a1", None, False) as book:
        assert book.seed != seed
    assert (tmp_path / "x" / "run.json").stat().st_mode & 0o077 == 0


def test_a_seed_that_is_given_is_used(tmp_path):
    with opened(tmp_path, "a1", "secret", False) as book:
        assert book.seed == "secret"
    with pytest.raises(Refused, match="another seed"), opened(tmp_path, "a1", "other", True):
        pass


def test_a_folder_for_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(Refused, match="not empty"), opened(tmp_path, "a1", None, False):
        pass
    with opened(tmp_path / "x", "a1", None, False):
        pass
    with pytest.raises(Refused, match="results of a1"), opened(tmp_path / "x", "a2", None, True):
        pass
    (tmp_path / "x" / "run.json").write_text(json.dumps({"seed": 5}))
    with (
        pytest.raises(Refused, match="as the grader wrote"),
        opened(tmp_path / "x", "a1", None, True),
    ):
        pass


def test_a_grader_that_was_stopped_before_it_began_can_begin(tmp_path):
    (tmp_path / ".lock").touch()
    with opened(tmp_path, "a1", None, False) as book:
        assert book.seed


def test_two_graders_do_not_share_a_folder(tmp_path):
    refused = pytest.raises(Refused, match="another grader")
    with opened(tmp_path, "a1", None, False), refused, opened(tmp_path, "a1", None, True):
        pass
    with opened(tmp_path, "a1", None, True):
        pass


def test_parts_of_files_are_swept(tmp_path):
    with opened(tmp_path, "a1", None, False):
        (tmp_path / "graded" / ".s05.json.77").write_text("{")
    with opened(tmp_path, "a1", None, True):
        assert not list((tmp_path / "graded").iterdir())


def test_a_file_is_whole_or_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    journal.write_whole(path, "first")

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(journal.os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        journal.write_whole(path, "second")
    assert path.read_text() == "first"


@pytest.mark.parametrize("name", ["../../etc", "a/b", ".", "", "x" * 500, "CON:", "学生 5\n"])
def test_the_name_of_a_file_is_no_path(name):
    safe = Result(name, name, name).name
    assert re.fullmatch(r"[\w-]{1,80}", safe)
    assert safe != Result(name, name, name + "2").name
