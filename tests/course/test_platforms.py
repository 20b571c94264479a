"""Totals reach Moodle, Canvas and Blackboard in the columns that these import."""

import csv
import io

import pytest

from course.journal import Refused, Result
from course.model import Outcome, Verdict
from course.platforms import PLATFORMS, Mark, Table, fill, orders, read_marks, read_table
from course.reports import Paper, table

TITLE = "Assignment 1"
MOODLE = Mark(
    "Student Five", "moodle 12345", "Student Five_12345_assignsubmission_file_", "17", "20"
)
CANVAS = Mark("fivestudent", "canvas 45", "fivestudent_45_67_a1.ipynb", "17.5", "20")
BLACKBOARD = Mark("s05", "blackboard A1_s05", "A1_s05_attempt_x_a1.ipynb", "17", "20")
BY_HAND = Mark("s05", "s05", "s05.ipynb", "17", "20")

WORKSHEET = """\
Identifier,Full name,ID number,Email address,Status,Grade,Maximum Grade,Last modified (grade)
Participant 12345,Student Five,s05,s05@example.org,Submitted,,20.00,-
Participant 12346,Student Six,s06,s06@example.org,Submitted,3.00,20.00,-
"""
GRADEBOOK = """\
Student,ID,SIS User ID,SIS Login ID,Section,A1 (777),A2 (778),A Current Score
    Points Possible,,,,,20.00,20.00,(read only)
"Five, Student",45,u5,s05,One,,5,25
"Six, Student",46,u6,s06,One,3,,9
"""
OFFLINE = (
    '"Last Name"\t"First Name"\t"Username"\t"Student ID"\t"A1 [Total Pts: 20 Score] |31"\t'
    '"A2 [Total Pts: 20 Score] |32"\n"Five"\t"Student"\t"s05"\t"05"\t""\t"5"\n'
    '"Six"\t"Student"\t"a_s05"\t"06"\t"3"\t""\n'
)


def roster(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "roster.csv"
    path.write_bytes(text.encode(encoding))
    return read_table(path)


def filled(name, marks, **options):
    """The rows as dicts, and what is told."""
    made, told = fill(PLATFORMS[name], marks, TITLE, **options)
    text = made.data().decode(made.encoding)
    return list(csv.DictReader(io.StringIO(text), delimiter=made.delimiter)), told


# With a roster


@pytest.mark.parametrize("mark", [MOODLE, BY_HAND, Mark("Five Student", "x", "", "17", "20")])
def test_moodles_worksheet_is_filled(tmp_path, mark):
    rows, told = filled("moodle", [mark], roster=roster(tmp_path, WORKSHEET))
    assert [row["Grade"] for row in rows] == ["17", "3.00"]
    assert [row["Identifier"] for row in rows] == ["Participant 12345", "Participant 12346"]
    assert (list(rows[0]), told) == (WORKSHEET.partition("\n")[0].split(","), [])


@pytest.mark.parametrize("mark", [CANVAS, BY_HAND, Mark("fivestudent", "x", "", "17.5", "20")])
def test_canvas_gets_one_assignment_and_who_it_is_for(tmp_path, mark):
    rows, told = filled("canvas", [mark], roster=roster(tmp_path, GRADEBOOK), column="a1")
    columns = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "A1 (777)"]
    assert list(rows[0]) == columns
    assert [row["A1 (777)"] for row in rows] == ["20.00", mark.total, "3"]
    assert told == []


@pytest.mark.parametrize("mark", [BLACKBOARD, BY_HAND, Mark("Student Five", "x", "", "17", "20")])
def test_blackboards_file_is_filled(tmp_path, mark):
    table = roster(tmp_path, OFFLINE, "utf-16")
    rows, told = filled("blackboard", [mark], roster=table, column="A1")
    column = "A1 [Total Pts: 20 Score] |31"
    assert list(rows[0]) == ["Last Name", "First Name", "Username", "Student ID", column]
    assert [row[column] for row in rows] == ["17", "3"]
    assert told == []


def test_the_longer_user_name_is_meant(tmp_path):
    mark = Mark("s05", "blackboard A1_a_s05", "A1_a_s05_attempt_x", "17", "20")
    rows, _ = filled("blackboard", [mark], roster=roster(tmp_path, OFFLINE), column="A1")
    assert [row["A1 [Total Pts: 20 Score] |31"] for row in rows] == ["", "17"]


def test_the_id_counts_more_than_the_name(tmp_path):
    mark = Mark("Student Six", "moodle 12345", "", "17", "20")
    rows, _ = filled("moodle", [mark], roster=roster(tmp_path, WORKSHEET))
    assert [row["Grade"] for row in rows] == ["17", "3.00"]


def test_the_id_of_another_platform_is_none(tmp_path):
    mark = Mark("Student Six", "canvas 12345", "", "17", "20")
    rows, _ = filled("moodle", [mark], roster=roster(tmp_path, WORKSHEET))
    assert [row["Grade"] for row in rows] == ["", "17"]


def test_whoever_is_not_in_the_roster_is_told(tmp_path):
    mark = Mark("Student Nine", "moodle 9", "x.ipynb", "17", "20")
    rows, told = filled("moodle", [mark, MOODLE], roster=roster(tmp_path, WORKSHEET))
    assert told == ["Student Nine (x.ipynb): is not in the roster"]
    assert rows[0]["Grade"] == "17"


def test_whoever_could_be_two_is_told(tmp_path):
    table = roster(tmp_path, WORKSHEET.replace("Student Six", "Student Five"))
    rows, told = filled("moodle", [Mark("Student Five", "x", "x", "17", "20")], roster=table)
    assert told == ["Student Five (x): more than one in the roster could be meant"]
    assert [row["Grade"] for row in rows] == ["", "3.00"]


def test_two_notebooks_of_a_student_are_told_and_none_is_taken(tmp_path):
    marks = [MOODLE, Mark("Student Five", "moodle 12345", "b.ipynb", "3", "20")]
    rows, told = filled("moodle", marks, roster=roster(tmp_path, WORKSHEET))
    assert len(told) == 2
    assert rows[0]["Grade"] == ""


def test_what_was_not_graded_is_told_and_leaves_the_platform_as_it_was(tmp_path):
    mark = Mark("Student Six", "moodle 12346", "x.ipynb", "", "20")
    rows, told = filled("moodle", [mark], roster=roster(tmp_path, WORKSHEET))
    assert told == ["Student Six (x.ipynb): was not graded"]
    assert rows[1]["Grade"] == "3.00"


def test_another_number_of_full_points_is_told_and_can_be_met(tmp_path):
    text = WORKSHEET.replace("20.00", "100.00")
    rows, told = filled("moodle", [MOODLE], roster=roster(tmp_path, text))
    assert rows[0]["Grade"] == "17"
    assert told == ["full points are 20 here, 100 there: set them there, or --out-of"]
    rows, told = filled("moodle", [MOODLE], roster=roster(tmp_path, text), most=100)
    assert (rows[0]["Grade"], told) == ("85", [])


def test_the_points_of_canvas_and_blackboard_are_compared_too(tmp_path):
    gradebook = roster(tmp_path, GRADEBOOK.replace("20.00,20.00", "30,20"))
    assert "20 here, 30 there" in filled("canvas", [CANVAS], roster=gradebook, column="A1")[1][0]
    offline = roster(tmp_path, OFFLINE.replace("A1 [Total Pts: 20", "A1 [Total Pts: 30"))
    told = filled("blackboard", [BLACKBOARD], roster=offline, column="A1")[1]
    assert "20 here, 30 there" in told[0]


def test_one_column_has_to_be_meant(tmp_path):
    for column in ("", "A", "A3"):
        with pytest.raises(Refused, match=r"--column.*A1 \(777\); A2 \(778\)"):
            filled("canvas", [CANVAS], roster=roster(tmp_path, GRADEBOOK), column=column)


def test_a_roster_of_another_platform_is_refused(tmp_path):
    with pytest.raises(Refused, match="no column Username, as exports of blackboard"):
        filled("blackboard", [BLACKBOARD], roster=roster(tmp_path, WORKSHEET))


# Without one


def test_moodle_without_a_roster_knows_participants():
    rows, told = filled("moodle", [MOODLE, BY_HAND])
    (row,) = rows
    assert (row["Identifier"], row["Grade"]) == ("Participant 12345", "17")
    assert "Last modified (grade)" in row  # its importer wants it
    assert told == ["s05 (s05.ipynb): is not in the roster"]


def test_canvas_without_a_roster_knows_ids_and_names():
    rows, told = filled("canvas", [CANVAS, BY_HAND])
    assert list(rows[0])[:3] == ["Student", "ID", "Section"]
    assert [row["Student"] for row in rows] == ["    Points Possible", "fivestudent", "s05"]
    assert [row["ID"] for row in rows] == ["", "45", ""]
    assert [row[TITLE] for row in rows] == ["20", "17.5", "17"]
    assert told == []


def test_blackboard_without_a_roster_knows_users():
    rows, _ = filled("blackboard", [BLACKBOARD])
    assert rows == [{"Username": "s05", f"{TITLE} [Total Pts: 20 Score]": "17"}]


# Tables


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_table_is_written_as_it_was_read(tmp_path, encoding, delimiter):
    path = tmp_path / "x.csv"
    path.write_bytes(delimiter.join(["学生", "b,c;d"]).join(["", "\r\n1"]).encode(encoding))
    table = Table(["学生", "a b"], [["1", ""]], delimiter, encoding)
    path.write_bytes(table.data())
    assert read_table(path) == table


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"", "empty"), ("学生".encode("gbk"), "neither in UTF-8 nor"), (None, "No such")],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, data, said):
    path = tmp_path / "x.csv"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(Refused, match=said):
        read_table(path)


def test_the_rows_of_the_grader_are_read_as_they_were_meant(tmp_path):
    paper = Paper(TITLE, {"q": "Q"}, {"q": 20.0})
    verdict = Verdict("q", 17.5, 20.0, [Outcome("right", 1, "")])
    path = tmp_path / "grades.csv"
    path.write_text(table(paper, [Result("=five", "canvas 45", "-x.ipynb", [verdict])]), "utf-8")
    assert read_marks(path) == [Mark("=five", "canvas 45", "-x.ipynb", "17.5", "20")]


def test_a_table_that_is_not_the_graders_is_refused(tmp_path):
    path = tmp_path / "grades.csv"
    path.write_text("student,total\ns05,3\n")
    with pytest.raises(Refused, match=r"\['file', 'id', 'most'\] are missing"):
        read_marks(path)
    path.write_text("student,id,file,total,most\ns05,s05,x,three,20\n")
    with pytest.raises(Refused, match="'three' where points belong"):
        read_marks(path)


def test_a_name_is_known_in_any_order_of_its_words():
    assert orders("van Five, Student") >= {"vanfivestudent", "studentvanfive"}
    assert orders("学生 五") == {"学生五", "五学生"}
    assert orders(" - ") == set()
