"""Bring the totals of grades.csv to a learning platform, in the columns that it imports.

    Moodle       the assignment's grading worksheet. Its importer wants Identifier, Grade and Last
                 modified (grade), by these very names, and reads the number at the end of the
                 identifier: mod/assign/feedback/offline/importgradeslib.php in moodle/moodle.
    Canvas       the gradebook. Its importer wants Student, ID and Section, in this order, before
                 the assignments, and knows a row "Points Possible". It finds a student by ID, else
                 by SIS ID, else by name: lib/gradebook_importer.rb in instructure/canvas-lms.
    Blackboard   the file of "Work offline". A student is known by Username, an assignment by the
                 number behind its heading, "Name [Total Pts: 20 Score] |123456"; a heading without
                 one makes a new column: Blackboard's help on uploading grades for work offline.

What the platform exported is the roster: its rows, delimiter and encoding stay, and the totals are
filled in. Without it a table is made of what the names of the files say.

A student is found in the roster by the id in the file's name, else by a login that is the
student's name here, else by the name in any order of its words. Whoever is not found, or could be
two, is told and left out.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .journal import Refused
from .reports import guarded, number, unguarded

DELIMITERS = ",;\t"
EXCEL = "utf-8-sig"


@dataclass(frozen=True)
class Mark:
    """A row of grades.csv."""

    student: str
    id: str
    file: str
    total: str
    most: str

    def out_of(self, most: float | None) -> str:
        """The total, where `most` stands for full points."""
        return self.total if most is None else number(float(self.total) * most / float(self.most))


@dataclass
class Table:
    """A table as a platform exports it."""

    header: list[str]
    rows: list[list[str]]
    delimiter: str = ","
    encoding: str = "utf-8"

    def cells(self, *names: str) -> Iterator[list[str]]:
        """Each row's cells in the columns of these names, as far as there are such columns."""
        places = [self.header.index(name) for name in names if name in self.header]
        return ([row[place] for place in places] for row in self.rows)

    def only(self, keep: Callable[[str], bool]) -> Table:
        """The columns whose names are to be kept."""
        places = [i for i, name in enumerate(self.header) if keep(name)]
        first, *rows = [[row[i] for i in places] for row in [self.header, *self.rows]]
        return Table(first, rows, self.delimiter, self.encoding)

    def data(self) -> bytes:
        file = io.StringIO()
        csv.writer(file, delimiter=self.delimiter).writerows([self.header, *self.rows])
        return file.getvalue().encode(self.encoding, errors="replace")


@dataclass(frozen=True)
class Platform:
    """What a platform's tables look like. Names of columns are those of its importer."""

    name: str
    id: str  # the column
    same: Callable[[str, str], bool]  # whether the id in a file's name is that of a row
    logins: Sequence[str]  # columns
    names: Sequence[str]  # columns that are a name together
    takes_marks: re.Pattern[str]  # headings
    kept: Callable[[str], bool]  # columns beside the one that is filled
    blank: Callable[[Sequence[Mark], str], tuple[Table, str]]  # and the heading to fill
    most: Callable[[Table, str], set[str]]  # what the platform takes for full points


# Reading


def read_marks(path: Path) -> list[Mark]:
    """The rows of grades.csv."""
    table, names = read_table(path), ("student", "id", "file", "total", "most")
    if missing := set(names) - set(table.header):
        raise Refused(f"{path} is no grades.csv of this grader: {sorted(missing)} are missing")
    found = [Mark(*map(unguarded, cells)) for cells in table.cells(*names)]
    for text in (text for mark in found for text in (mark.total or "0", mark.most)):
        if _float(text) is None:
            raise Refused(f"{path} has {text!r} where points belong")
    return found


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def read_table(path: Path) -> Table:
    """A table in UTF-8 or UTF-16, with commas, semicolons or tabs."""
    try:
        data = path.read_bytes()
        encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
        encoding = EXCEL if data.startswith(b"\xef\xbb\xbf") else encoding
        text = data.decode(encoding)
    except OSError as error:
        raise Refused(f"{path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Refused(f"{path} is neither in UTF-8 nor in UTF-16: export it so") from None
    tables = [list(csv.reader(io.StringIO(text), delimiter=mark)) for mark in DELIMITERS]
    rows, mark = max(
        zip(tables, DELIMITERS, strict=True), key=lambda both: len((both[0] or [[]])[0])
    )
    if not rows:
        raise Refused(f"{path} is empty")
    header, *others = rows
    filled = [row + [""] * (len(header) - len(row)) for row in others if row]
    return Table(header, filled, mark, encoding)


# Who is who


def place(platform: Platform, roster: Table, mark: Mark) -> int | str:
    """The row of a student, or why there is none."""
    found: list[int] = []
    kind, _, id = mark.id.partition(" ")
    if kind == platform.name:
        cells = list(roster.cells(platform.id))
        found = _where(cells, lambda c: platform.same(id, c))
        # A user of Blackboard can be called as the end of another's name: the longest is meant.
        longest = max((len(cells[i][0]) for i in found), default=0)
        found = [i for i in found if len(cells[i][0]) == longest]
    if not found:
        known = mark.student.casefold()
        logins = roster.cells(*platform.logins)
        found = _where(logins, lambda c: known in (c.casefold(), c.casefold().partition("@")[0]))
    if not found:
        named = [[" ".join(cells)] for cells in roster.cells(*platform.names)]
        found = _where(named, lambda c: compact(mark.student) in orders(c))
    if len(found) > 1:
        return "more than one in the roster could be meant"
    return found[0] if found else "is not in the roster"


def _where(rows: Iterable[Sequence[str]], fits: Callable[[str], bool]) -> list[int]:
    return [i for i, cells in enumerate(rows) if any(cell and fits(cell) for cell in cells)]


def compact(name: str) -> str:
    """A name without spaces, signs and capitals, as Canvas writes it into file names."""
    kept = (letter for letter in unicodedata.normalize("NFKC", name) if letter.isalnum())
    return "".join(kept).casefold()


def orders(name: str) -> set[str]:
    """A name as it may be written: surname first, or first name first.

    >>> sorted(orders("Five, Student"))
    ['fivestudent', 'studentfive']
    """
    words = list(filter(None, map(compact, name.split())))
    return {"".join(words[i:] + words[:i]) for i in range(len(words))} - {""}


# Filling in


def fill(
    platform: Platform,
    marks: Sequence[Mark],
    title: str,
    roster: Table | None = None,
    column: str = "",
    most: float | None = None,
) -> tuple[Table, list[str]]:
    """The table to import, and a line for each row of grades.csv that is not in it.

    column  the heading to fill, or a part of it, where the roster has several assignments
    most    what full points become on the platform; what they are here unless given
    """
    usable, told = _usable(marks)
    if roster is None:
        table, heading = platform.blank(usable, title)
    elif platform.id in roster.header:
        table, heading = roster, _heading(platform, roster, column)
    else:
        raise Refused(f"the roster has no column {platform.id}, as exports of {platform.name} have")
    table = table.only(lambda name: name == heading or platform.kept(name))
    for mark in usable:
        where = place(platform, table, mark)
        if isinstance(where, str):
            told.append(f"{mark.student} ({mark.file}): {where}")
        else:
            table.rows[where][table.header.index(heading)] = mark.out_of(most)
    return table, told + _differing(platform, table, heading, marks, most)


def _usable(marks: Sequence[Mark]) -> tuple[list[Mark], list[str]]:
    """The marks of students with one mark, and why the others are none."""
    ids = [mark.id for mark in marks]
    usable, told = [], []
    for mark in marks:
        if ids.count(mark.id) > 1:
            told.append(
                f"{mark.student} ({mark.file}): another notebook was graded too: "
                "remove one of the rows from grades.csv"
            )
        elif not mark.total:
            told.append(f"{mark.student} ({mark.file}): was not graded")
        else:
            usable.append(mark)
    return usable, told


def _heading(platform: Platform, table: Table, column: str) -> str:
    """The heading to fill."""
    known = [name for name in table.header if platform.takes_marks.search(name)]
    fitting = [name for name in known if column.casefold() in name.casefold()]
    if len(fitting) != 1:
        listed = "; ".join(known) or "none"
        raise Refused(f"name the column to fill with --column, by a part of it: {listed}")
    return fitting[0]


def _differing(
    platform: Platform, table: Table, heading: str, marks: Sequence[Mark], most: float | None
) -> list[str]:
    """A line where full points here are not full points there."""
    ours = {most} if most else {float(mark.most) for mark in marks}
    read = (_float(text) for text in platform.most(table, heading))
    theirs = {full for full in read if full is not None}
    if not theirs or theirs == ours:
        return []
    values = [" and ".join(number(value) for value in sorted(both)) for both in (ours, theirs)]
    return [f"full points are {values[0]} here, {values[1]} there: set them there, or --out-of"]


# The platforms


def _moodle_blank(marks: Sequence[Mark], title: str) -> tuple[Table, str]:
    header = ["Identifier", "Full name", "Grade", "Maximum grade", "Last modified (grade)"]
    known = [(mark, mark.id.partition(" ")[2]) for mark in marks if mark.id.startswith("moodle ")]
    rows = [[f"Participant {id}", guarded(mark.student), "", mark.most, ""] for mark, id in known]
    return Table(header, rows), "Grade"


def _canvas_blank(marks: Sequence[Mark], title: str) -> tuple[Table, str]:
    rows = [["    Points Possible", "", "", marks[0].most if marks else ""]]
    for mark in marks:
        id = mark.id.removeprefix("canvas ") if mark.id.startswith("canvas ") else ""
        rows.append([guarded(mark.student), id, "", ""])
    return Table(["Student", "ID", "Section", title], rows), title


def _blackboard_blank(marks: Sequence[Mark], title: str) -> tuple[Table, str]:
    heading = f"{title} [Total Pts: {marks[0].most if marks else ''} Score]"
    return Table(["Username", heading], [[guarded(mark.student), ""] for mark in marks]), heading


def _canvas_most(table: Table, heading: str) -> set[str]:
    rows = table.cells("Student", heading)
    return {full for name, full in rows if "Points Possible" in name}


def _blackboard_most(table: Table, heading: str) -> set[str]:
    return set(re.findall(r"\[Total Pts: (?:up to )?([\d.]+)", heading))


def _moodle_most(table: Table, heading: str) -> set[str]:
    columns = table.cells("Maximum grade", "Maximum Grade")
    return {cell for cells in columns for cell in cells}


CANVAS_COLUMNS = {"Student", "LastName", "FirstName", "ID", "SIS User ID", "SIS Login ID"}
CANVAS_COLUMNS |= {"Integration ID", "Root Account", "Section"}

PLATFORMS = {
    "moodle": Platform(
        "moodle",
        "Identifier",
        lambda id, cell: re.findall(r"\d+$", cell) == [id],
        ["ID number", "Email address", "Username"],
        ["Full name"],
        re.compile(r"^Grade$"),
        lambda name: True,
        _moodle_blank,
        _moodle_most,
    ),
    "canvas": Platform(
        "canvas",
        "ID",
        lambda id, cell: id == cell,
        ["SIS Login ID", "SIS User ID"],
        ["Student", "LastName", "FirstName"],
        re.compile(r" \(\d+\)$"),
        lambda name: name in CANVAS_COLUMNS,
        _canvas_blank,
        _canvas_most,
    ),
    "blackboard": Platform(
        "blackboard",
        "Username",
        lambda id, cell: id == cell or id.endswith(f"_{cell}"),
        ["Username", "Student ID"],
        ["Last Name", "First Name"],
        re.compile(r"\[Total Pts: "),
        lambda name: "[Total Pts: " not in name,
        _blackboard_blank,
        _blackboard_most,
    ),
}
