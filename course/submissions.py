"""Find the notebooks that a learning platform exported, and whose they are.

    Moodle       Surname Name_12345_assignsubmission_file_/x.ipynb, or all of it in one file name
    Canvas       surnamename_12345_67890_x.ipynb, with _LATE behind the name where it was late
    Blackboard   A1_user_attempt_2026-10-01-10-11-12_x.ipynb, with a .txt beside it
    by hand      a folder for each student, or files that have the student's name

Zip files are looked into and never unpacked. Links are not followed: what a student's archive
links to is not the student's. Nothing here runs anything.

Of a student with several notebooks the latest attempt counts where the file names say which it is
(Blackboard's do). Among the rest, notebooks of other assignments and copies are left out. What is
left is graded, each by itself, and told: which of them counts is not for a program to guess.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from . import notebook
from .notebook import LARGEST, Notebook, Unreadable

MOST_FILES = 20_000  # in one archive
BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError)
JUNK = {"__MACOSX", "__pycache__", "Thumbs.db", "desktop.ini"}
# Moodle's mod/assign, Canvas's content_zipper.rb and Blackboard's "Assignment File Download" name
# files so. Moodle writes no last "_" in some versions; Canvas leaves out names where it is set so.
MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_(file|onlinetext)_?(?P<file>.*)")
CANVAS = re.compile(r"(?P<name>.+?)(?P<late>_LATE)?_(?P<id>\d+)_\d+_(?P<file>.+)")
CANVAS_ANONYMOUS = re.compile(r"(?P<name>anon)(?P<late>_LATE)?_(?P<id>\w+?)_\d+_(?P<file>.+)")
BLACKBOARD = re.compile(r"(?P<id>.+?)_attempt_(?P<attempt>\d{4}(-\d\d){5})(_(?P<file>.+)|\.txt)")


@dataclass(frozen=True)
class Owner:
    """Whose a file is, as far as its name says. The key is the same for all files of a student."""

    student: str
    id: str = ""  # the platform's
    platform: str = ""
    late: bool = False
    attempt: str = ""  # comes later in the alphabet when it was handed in later

    @property
    def key(self) -> str:
        return f"{self.platform} {self.id}" if self.id else self.student


@dataclass(frozen=True)
class File:
    """A file that was handed in: its path, and the same seen from the class's folder or archive."""

    path: str
    place: str
    open: Callable[[], IO[bytes]]
    problem: str = ""  # why it can't be read, known without reading it

    @property
    def is_notebook(self) -> bool:
        return self.path.lower().endswith(".ipynb")

    @property
    def is_archive(self) -> bool:
        return self.path.lower().endswith(".zip")

    def load(self) -> bytes:
        """Its bytes; of a file that is too large, enough to see that it is."""
        if self.problem:
            raise Unreadable(self.problem)
        with self.open() as stream:
            return stream.read(LARGEST + 1)


@dataclass(frozen=True)
class Submission:
    """What is graded: one notebook of a student, or the reason why there is none."""

    owner: Owner
    file: str
    digest: str = ""  # of the file's bytes
    notebook: Notebook | None = None
    problem: str = ""
    remarks: Sequence[str] = field(default=())
    rivals: bool = False  # whether another notebook of the student is graded as well


def find(root: Path, belongs: Callable[[Notebook], str]) -> list[Submission]:
    """Every student's submission in a folder or a zip file, in the order of their names.

    `belongs` says "" of a notebook of the assignment, and else what it is instead.
    """
    students: dict[str, list[tuple[Owner, File]]] = {}
    for file in files(root):
        who = owner(PurePosixPath(file.place).parts)
        students.setdefault(who.key, []).append((who, file))
    chosen = [one for found in students.values() for one in choose(found, belongs)]
    return sorted(chosen, key=lambda one: (one.owner.student.casefold(), one.file))


def owner(parts: Sequence[str]) -> Owner:
    """Whose a file is, by the first part of its path: the others are named by students."""
    first = parts[0]
    if found := MOODLE.fullmatch(first):
        return Owner(found["name"], found["id"], "moodle")
    if found := BLACKBOARD.fullmatch(first):
        # The id begins with the name of the assignment; a user's name may have a "_" as well.
        user = found["id"].rpartition("_")[2]
        return Owner(user, found["id"], "blackboard", attempt=found["attempt"])
    if found := CANVAS_ANONYMOUS.fullmatch(first) or CANVAS.fullmatch(first):
        return Owner(found["name"], found["id"], "canvas", late=bool(found["late"]))
    return Owner(PurePosixPath(first).stem if len(parts) == 1 else first.removesuffix(".zip"))


# Which of a student's files counts


def choose(
    found: Sequence[tuple[Owner, File]], belongs: Callable[[Notebook], str]
) -> list[Submission]:
    """The submissions of one student: one as a rule."""
    latest = max(who.attempt for who, _ in found)
    remarks = [
        f"an earlier attempt is left out: {file.path}"
        for who, file in found
        if who.attempt < latest and file.is_notebook
    ]
    last = [(who, file) for who, file in found if who.attempt == latest]
    tried = [_open(*one, belongs) for one in last if one[1].is_notebook]
    if not tried:
        return [_nothing(last, remarks)]
    good = _without_copies([one for one in tried if not one.problem])
    kept = good or tried[:1]
    left_out = [one for one in tried if not any(one is other for other in kept)]
    remarks += [f"left out: {one.file} ({one.problem or 'a copy'})" for one in left_out]
    if len(kept) > 1:
        names = " and ".join(one.file for one in kept)
        remarks.append(f"handed in {names}: nobody can tell which counts, so each is graded")
    rivals = len(kept) > 1
    return [replace(one, remarks=[*one.remarks, *remarks], rivals=rivals) for one in kept]


def _open(who: Owner, file: File, belongs: Callable[[Notebook], str]) -> Submission:
    remarks = ["handed in late, as Canvas says"] if who.late else []
    try:
        data = file.load()
        content = notebook.read(data)
    except (Unreadable, OSError) as error:
        return Submission(who, file.path, problem=str(error), remarks=remarks)
    remarks += content.remarks
    digest = hashlib.sha256(data).hexdigest()
    return Submission(who, file.path, digest, content, belongs(content), remarks)


def _nothing(found: Sequence[tuple[Owner, File]], remarks: Sequence[str]) -> Submission:
    """A student who handed in no notebook."""
    who, first = found[0]
    names = ", ".join(file.path for _, file in found)
    problem = first.problem or f"no notebook (.ipynb) was handed in, but {names}"
    return Submission(who, first.path, problem=problem, remarks=remarks)


def _without_copies(tried: Sequence[Submission]) -> list[Submission]:
    """The first of each, where several have the same code."""
    first: dict[tuple[notebook.Cell, ...], Submission] = {}
    for one in tried:
        assert one.notebook is not None
        first.setdefault(tuple(one.notebook.cells), one)
    return list(first.values())


# Files, in folders and in archives


def files(root: Path) -> Iterator[File]:
    """Every file of a folder or of a zip file, in order; what is in zip files instead of them."""
    if root.is_dir():
        for file in _in_folder(root):
            yield from _unpacked(file)
    else:
        archive = File(root.name, root.name, _opener(root))
        yield from _members_of_class(archive, _members(archive))


def _in_folder(root: Path) -> Iterator[File]:
    closed: list[OSError] = []
    for folder, folders, names in os.walk(root, onerror=closed.append):
        here = Path(folder)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = sorted(name for name in set(folders) - set(links) if not _is_junk(name))
        kept = sorted(name for name in [*names, *links] if not _is_junk(name))
        for path in (here / name for name in kept):
            yield _on_disk(path, path.relative_to(root).as_posix())
        if not folders and not kept and here != root:
            place = here.relative_to(root).as_posix()
            yield File(f"{place}/", f"{place}/nothing", io.BytesIO, "the folder is empty")
    for place in (Path(error.filename).relative_to(root).as_posix() for error in closed):
        yield File(f"{place}/", f"{place}/nothing", io.BytesIO, "the folder can't be opened")


def _on_disk(path: Path, place: str) -> File:
    mode = path.lstat().st_mode
    kind = "a link, which nobody follows" if stat.S_ISLNK(mode) else "no ordinary file"
    return File(place, place, _opener(path), "" if stat.S_ISREG(mode) else f"it is {kind}")


def _opener(path: Path) -> Callable[[], IO[bytes]]:
    return lambda: path.open("rb")


def _unpacked(file: File, in_class: bool = True) -> Iterator[File]:
    """The file, or what is in it if it is a zip file: a student's or the class's."""
    if not file.is_archive or file.problem:
        yield file
        return
    try:
        inside = list(_members(file))
    except Unreadable as error:
        yield replace(file, problem=str(error))
        return
    several = sum(one.is_notebook or one.is_archive for one in inside) > 1
    of_class = in_class and "/" not in file.place and not owner((file.place,)).platform
    if of_class and several:
        yield from _members_of_class(file, inside)
    else:
        yield from (replace(one, place=f"{file.place}/{one.place}") for one in inside)


def _members_of_class(archive: File, inside: Iterable[File]) -> Iterator[File]:
    """The students' files in a class's archive, seen from the folder around them if it has one."""
    inside = list(inside)
    tops = {one.place.partition("/")[0] for one in inside}
    around = tops.pop() if len(tops) == 1 and all("/" in one.place for one in inside) else ""
    several = sum(one.is_notebook or one.is_archive for one in inside) > 1
    if around and several and not owner((around,)).platform:
        inside = [replace(one, place=one.place.removeprefix(around + "/")) for one in inside]
    for one in inside:
        yield from _unpacked(one, in_class=False)


def _members(archive: File) -> Iterator[File]:
    """What is in a zip file, by the paths inside; nothing is written, so that none can lead out."""
    try:
        with archive.open() as stream, zipfile.ZipFile(stream) as content:
            members = content.infolist()
    except (*BROKEN, OSError):
        raise Unreadable("the zip file is broken") from None
    if len(members) > MOST_FILES:
        raise Unreadable(f"the zip file has {len(members):,} files; {MOST_FILES:,} are too many")
    for member in members:
        parts = [part for part in PurePosixPath(member.filename).parts if part not in ("/", "..")]
        if parts and not member.is_dir() and not any(map(_is_junk, parts)):
            place = "/".join(parts)
            yield File(f"{archive.path}/{place}", place, partial(_open_member, archive, member))


def _open_member(archive: File, member: zipfile.ZipInfo) -> IO[bytes]:
    """Its bytes, at most one more than may be read: a small archive can hold a huge file."""
    try:
        with archive.open() as stream, zipfile.ZipFile(stream) as content:
            return io.BytesIO(content.open(member).read(LARGEST + 1))
    except BROKEN:
        raise Unreadable("it can't be taken out of the zip file: broken or encrypted") from None


def _is_junk(name: str) -> bool:
    return name.startswith(".") or name in JUNK
