"""Notebooks are found as platforms export them, and read however they were treated."""

import json
import os

import pytest

from course import notebook as reader
from course import submissions
from course.notebook import Unreadable
from course.submissions import find, owner
from tests.course.handed_in import archive, code, hand_in, notebook, text

ONE = notebook("x = 1")
OTHER = notebook("x = 2")
MOODLE = "Fifth Student_12345_assignsubmission_file_"
CANVAS = "studentfifth_LATE_12345_67890_a1.ipynb"
BLACKBOARD = "A1_s05_attempt_2026-10-01-10-11-12"
UNTITLED = "this is another assignment"


def fits(content):
    """Every notebook is of the assignment, unless its title says otherwise."""
    return UNTITLED if content.title == "Other" else ""


def found(root):
    return find(root, fits)


def only(root):
    (one,) = found(root)
    return one


def sources(data):
    return [cell.source for cell in reader.read(data).cells]


# Whose a file is


@pytest.mark.parametrize(
    ("path", "student", "key"),
    [
        (f"{MOODLE}/a1.ipynb", "Fifth Student", "moodle 12345"),
        (f"{MOODLE}a1.ipynb", "Fifth Student", "moodle 12345"),
        (f"{MOODLE[:-1]}/a1.ipynb", "Fifth Student", "moodle 12345"),
        ("Participant_12345_assignsubmission_file_/a1.ipynb", "Participant", "moodle 12345"),
        (CANVAS, "studentfifth", "canvas 12345"),
        ("studentfifth_12345_67890_a1-2.ipynb", "studentfifth", "canvas 12345"),
        ("anon_aB3x9_67890_a1.ipynb", "anon", "canvas aB3x9"),
        (f"{BLACKBOARD}_a1.ipynb", "s05", "blackboard A1_s05"),
        (f"{BLACKBOARD}.txt", "s05", "blackboard A1_s05"),
        ("s05/a1.ipynb", "s05", "s05"),
        ("s05.ipynb", "s05", "s05"),
        ("s05.zip/a1.ipynb", "s05", "s05"),
    ],
)
def test_a_file_name_says_whose_it_is(path, student, key):
    who = owner(path.split("/"))
    assert (who.student, who.key) == (student, key)


def test_a_file_that_is_named_like_another_students_stays_its_owners():
    assert owner(["s07", f"{MOODLE}a1.ipynb"]).student == "s07"
    assert owner(["s07_1_2_studentfifth_12345_67890_a1.ipynb"]).id == "1"
    assert owner([f"s07_1_assignsubmission_file_{MOODLE}a1.ipynb"]).id == "1"
    assert owner([f"A1_s07_attempt_2026-10-01-10-11-12_{BLACKBOARD}_x.ipynb"]).student == "s07"


def test_users_of_blackboard_whose_names_end_alike_stay_apart(tmp_path):
    names = [f"A1_{user}_attempt_2026-10-01-10-11-12_a1.ipynb" for user in ("a_five", "b_five")]
    assert len(found(hand_in(tmp_path, dict.fromkeys(names, ONE)))) == 2


def test_every_student_has_one_submission(tmp_path):
    paths = [
        f"{MOODLE}/a1.ipynb",
        CANVAS,
        f"{BLACKBOARD}_a1.ipynb",
        "s06/deep/a1.ipynb",
        "s07.ipynb",
    ]
    chosen = found(hand_in(tmp_path, dict.fromkeys(paths, ONE)))
    assert {one.file for one in chosen} == set(paths)
    assert all(not one.problem and not one.rivals for one in chosen)


def test_a_late_submission_is_told(tmp_path):
    assert "late" in only(hand_in(tmp_path, {CANVAS: ONE})).remarks[0]


def test_what_systems_leave_behind_is_no_submission(tmp_path):
    junk = ["__MACOSX/s05/._a1.ipynb", "s05/.ipynb_checkpoints/a1-checkpoint.ipynb", ".DS_Store"]
    chosen = only(hand_in(tmp_path, dict.fromkeys([*junk, "s05/._a1.ipynb", "s05/a1.ipynb"], ONE)))
    assert chosen.file == "s05/a1.ipynb"
    assert not chosen.remarks


# Which of several counts


def test_the_later_attempt_counts_where_the_name_says_so(tmp_path):
    early = "A1_s05_attempt_2026-09-30-23-59-59_a1.ipynb"
    chosen = only(hand_in(tmp_path, {f"{BLACKBOARD}_a1.ipynb": ONE, early: OTHER}))
    assert chosen.file == f"{BLACKBOARD}_a1.ipynb"
    assert chosen.remarks == [f"an earlier attempt is left out: {early}"]


def test_the_later_attempt_counts_even_if_it_can_not_be_read(tmp_path):
    early = "A1_s05_attempt_2026-09-30-23-59-59_a1.ipynb"
    chosen = only(hand_in(tmp_path, {f"{BLACKBOARD}_a1.ipynb": b"", early: OTHER}))
    assert "empty" in chosen.problem
    assert early in chosen.remarks[0]


def test_of_two_notebooks_none_is_guessed(tmp_path):
    chosen = found(hand_in(tmp_path, {"s05/a1 (1).ipynb": ONE, "s05/a1.ipynb": OTHER}))
    assert [one.file for one in chosen] == ["s05/a1 (1).ipynb", "s05/a1.ipynb"]
    for one in chosen:
        assert one.rivals
        assert "s05/a1 (1).ipynb and s05/a1.ipynb" in one.remarks[0]


def test_of_two_notebooks_with_the_same_code_one_is_a_copy(tmp_path):
    same = notebook(text("Another text"), code("x = 1", outputs=[1]))
    chosen = only(hand_in(tmp_path, {"s05/a.ipynb": ONE, "s05/b.ipynb": same}))
    assert not chosen.rivals
    assert chosen.remarks == ["left out: s05/b.ipynb (a copy)"]


def test_of_two_notebooks_the_one_of_the_assignment_counts(tmp_path):
    other = notebook(text("# Other"), "y = 1")
    chosen = only(hand_in(tmp_path, {"s05/a2.ipynb": other, "s05/a1.ipynb": ONE, "s05/b": b"x"}))
    assert chosen.file == "s05/a1.ipynb"
    assert chosen.remarks == [f"left out: s05/a2.ipynb ({UNTITLED})"]


def test_a_notebook_of_another_assignment_is_told(tmp_path):
    assert only(hand_in(tmp_path, {"s05.ipynb": notebook(text("# Other"))})).problem == UNTITLED


def test_a_student_without_a_notebook_is_told(tmp_path):
    files = {f"{BLACKBOARD}.txt": b"Name: five", f"{BLACKBOARD}_a1.pdf": b"%PDF"}
    assert f"{BLACKBOARD}_a1.pdf" in only(hand_in(tmp_path, files)).problem


def test_an_empty_folder_is_told(tmp_path):
    (tmp_path / "s05").mkdir()
    assert (only(tmp_path).owner.student, only(tmp_path).problem) == ("s05", "the folder is empty")


@pytest.mark.skipif(os.geteuid() == 0, reason="to root no folder is closed")
def test_a_folder_that_is_closed_is_told(tmp_path):
    (tmp_path / "s05").mkdir(mode=0)
    assert only(tmp_path).problem == "the folder can't be opened"


def test_a_link_is_not_followed(tmp_path):
    secret = hand_in(tmp_path, {"solution.ipynb": ONE}) / "solution.ipynb"
    (tmp_path / "in" / "s05").mkdir(parents=True)
    (tmp_path / "in" / "s05" / "a1.ipynb").symlink_to(secret)
    (tmp_path / "in" / "s06").symlink_to(tmp_path)
    assert [one.problem for one in found(tmp_path / "in")] == [
        "it is a link, which nobody follows"
    ] * 2


def test_a_pipe_does_not_stop_the_search(tmp_path):
    os.mkfifo(tmp_path / "s05.ipynb")
    assert only(tmp_path).problem == "it is no ordinary file"


# Archives


def test_a_class_in_a_zip_file_is_read(tmp_path):
    path = archive(tmp_path / "all.zip", {f"{MOODLE}/a1.ipynb": ONE, "s06.ipynb": OTHER})
    chosen = found(path)
    assert [one.owner.student for one in chosen] == ["Fifth Student", "s06"]
    assert [one.owner.student for one in found(tmp_path)] == ["Fifth Student", "s06"]


def test_a_folder_around_a_class_in_a_zip_file_is_looked_through(tmp_path):
    path = archive(tmp_path / "all.zip", {"all/s05.ipynb": ONE, "all/s06/a1.ipynb": OTHER})
    assert [one.owner.student for one in found(path)] == ["s05", "s06"]


def test_a_students_zip_file_is_read(tmp_path):
    archive(tmp_path / "s05" / "work.zip", {"a1.ipynb": ONE, "__MACOSX/._a1.ipynb": b"x"})
    archive(tmp_path / "s06.zip", {"deep/a1.ipynb": ONE})
    archive(tmp_path / "studentseventh_7_8_work.zip", {"a1.ipynb": ONE, "data.csv": b""})
    students = [one.owner.student for one in found(tmp_path) if not one.problem]
    assert students == ["s05", "s06", "studentseventh"]


def test_a_students_zip_file_in_the_zip_file_of_the_class_is_read(tmp_path):
    inner = archive(tmp_path / "inner.zip", {"a1.ipynb": ONE}).read_bytes()
    path = archive(tmp_path / "all.zip", {f"{MOODLE}/work.zip": inner, "s06.ipynb": OTHER})
    assert not any(one.problem for one in found(path))


def test_a_zip_file_can_not_lead_out_of_itself(tmp_path):
    path = archive(tmp_path / "in" / "s05.zip", {"../../s06/a1.ipynb": ONE, "/etc/a1.ipynb": ONE})
    assert [one.owner.student for one in found(path.parent)] == ["etc", "s06"]
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["in", "s05.zip"]


def test_a_huge_file_in_a_small_archive_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(submissions, "LARGEST", 1000)
    monkeypatch.setattr(reader, "LARGEST", 1000)
    archive(tmp_path / "s05.zip", {"a1.ipynb": b" " * 10_000_000})
    assert "1,001 bytes" in only(tmp_path).problem
    (file,) = submissions.files(tmp_path)
    assert len(file.open().read()) == 1001


def test_a_broken_zip_file_is_told(tmp_path):
    whole = archive(tmp_path / "s05.zip", {"a1.ipynb": ONE * 99}).read_bytes()
    hand_in(tmp_path, {"s06.zip": b"PK nonsense", "s05.zip": whole.replace(b"\xcb", b"\xca")})
    assert "broken" in found(tmp_path)[1].problem


# Reading a notebook


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b" \n\0", "empty"),
        (b"not a notebook", "not JSON"),
        (b"\x89PNG\r\n\x1a\n", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1, 2]", "no cells"),
        (b'{"a": 1}', "no cells"),
        (b'{"cells": 5}', "no cells"),
        (notebook(*["x"] * 2001), "2001 cells"),
    ],
)
def test_what_is_no_notebook_is_told_in_a_line(data, said):
    with pytest.raises(Unreadable, match=said) as caught:
        reader.read(data)
    assert "\n" not in str(caught.value)


def test_a_large_file_is_not_parsed(monkeypatch):
    monkeypatch.setattr(reader, "LARGEST", 10)
    with pytest.raises(Unreadable, match=f"{len(ONE)} bytes; at most 10"):
        reader.read(ONE)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_encodings_are_recognised(encoding):
    data = json.dumps(json.loads(notebook("x = '注意力'")), ensure_ascii=False).encode(encoding)
    assert sources(data) == ["x = '注意力'"]


def test_bytes_of_another_encoding_are_told_and_cost_nothing_else():
    data = notebook("# remark\nx = 1").replace(b"remark", "注意".encode("gbk"))
    content = reader.read(data)
    assert "characters are not in utf-8" in content.remarks[0]
    assert content.cells[0].source.endswith("\nx = 1")


def test_line_ends_of_other_systems_are_read():
    assert sources(notebook("x = 1\r\ny = 2\rz = 3")) == ["x = 1\ny = 2\nz = 3"]


def test_source_is_read_as_a_list_and_as_a_string():
    assert (
        sources(notebook(code(["x = 1\n", "y = 2"]), code("x = 1\ny = 2"))) == ["x = 1\ny = 2"] * 2
    )


def test_a_notebook_of_format_3_is_read():
    cells = [{"cell_type": "code", "input": ["x = 1\n", "y = 2"], "language": "python"}]
    old = {"nbformat": 3, "metadata": {}, "worksheets": [{"cells": cells}]}
    assert sources(json.dumps(old).encode()) == ["x = 1\ny = 2"]


@pytest.mark.parametrize(
    "cell",
    [5, None, {}, {"cell_type": "code"}, {"cell_type": "code", "source": 5, "metadata": []}],
)
def test_cells_that_are_none_cost_nothing(cell):
    assert sources(json.dumps({"cells": [cell, code("x = 1")]}).encode())[-1] == "x = 1"


def test_metadata_of_others_is_no_matter():
    colab = {"colab": {"provenance": []}, "kernelspec": {"name": "R", "display_name": "x"}}
    cell = code("x = 1", execution_count=7, id="", outputs=["?"]) | {"metadata": {"id": "q3"}}
    assert sources(notebook(cell, metadata=colab)) == ["x = 1"]


def test_titles_and_grade_ids_are_read():
    content = reader.read(
        notebook(text("Hello\n# The title \r\nWords"), code("x", grade_id="softmax"))
    )
    assert (content.title, content.grade_ids) == ("The title", {"softmax"})
    assert content.cells[0].grade_id == "softmax"
