"""Keep what was graded, so that nothing of it is lost when the grader is stopped.

RESULTS/run.json         what this is the grading of, and the secret seed of the inputs
RESULTS/graded/*.json    one file for each submission, written whole as soon as it is graded
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .model import Outcome, Verdict


class Refused(ValueError):
    """Why there is nothing that can be done, in one line."""


@dataclass(frozen=True)
class Result:
    """What came of a submission: verdicts, or the problem for which there are none."""

    student: str
    key: str
    file: str
    verdicts: Sequence[Verdict] = ()
    errors: Sequence[str] = ()  # of cells that could not be loaded
    problem: str = ""
    remarks: Sequence[str] = ()
    rivals: bool = False  # whether another notebook of the student was graded as well

    @property
    def points(self) -> float:
        return round(sum(verdict.points for verdict in self.verdicts), 2)

    @property
    def told(self) -> list[str]:
        """All that an instructor should know, a line each, with the questions it is about."""
        about: dict[str, list[str]] = {}
        for verdict in self.verdicts:
            for line in verdict.told:
                about.setdefault(line, []).append(verdict.grade_id)
        of_questions = [f"{', '.join(ids)}: {line}" for line, ids in about.items()]
        return [*filter(None, [self.problem]), *self.remarks, *of_questions]

    @property
    def name(self) -> str:
        """What its files are called: readable, and as no other submission's."""
        return f"{slug(self.student)}-{digest(self.key, self.file)[:8]}"


def slug(text: str) -> str:
    """The letters and digits of a name, in any script.

    >>> slug("../Zoë <b>five</b>")
    'Zoë-b-five-b'
    """
    words = re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text))
    return "-".join(words)[:60] or "student"


def digest(*values: Any) -> str:
    """The same for the same values, and for no others."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is either as it was or as it shall be, whenever one looks."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with part.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


@dataclass(frozen=True)
class Journal:
    """A folder of results that is open for one grader."""

    folder: Path
    seed: str

    def keep(self, result: Result, state: str) -> None:
        """Store a result; `state` is the digest of all that it depends on."""
        record = {"state": state, **asdict(result)}
        write_whole(self._path(result), json.dumps(record, indent=1))

    def known(self, result: Result, state: str) -> Result | None:
        """The stored result for a submission, if nothing that it depends on has changed."""
        try:
            record = json.loads(self._path(result).read_text(encoding="utf-8"))
            return _result(record) if record.pop("state") == state else None
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None  # never stored, or by another version: it is graded again

    def _path(self, result: Result) -> Path:
        return self.folder / "graded" / f"{result.name}.json"


@contextmanager
def opened(folder: Path, assignment: str, seed: str | None, resume: bool) -> Iterator[Journal]:
    """The journal in a folder, for an assignment; Refused where the folder is not for that."""
    run = folder / "run.json"
    stored = _stored(run)
    if stored and not resume:
        raise Refused(
            f"{folder} has results already: add --resume to go on with them, or name another "
            "folder with --out"
        )
    if not stored and folder.is_dir() and any(p.name[0] != "." for p in folder.iterdir()):
        raise Refused(f"{folder} is not empty, and holds no results: name another with --out")
    if stored and stored["assignment"] != assignment:
        raise Refused(
            f"{folder} has results of {stored['assignment']}: name another folder with --out"
        )
    if stored and seed not in (None, stored["seed"]):
        raise Refused(f"{folder} was graded with another seed: leave --seed out to go on with it")
    seed = stored["seed"] if stored else seed or secrets.token_hex(16)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        write_whole(run, json.dumps({"assignment": assignment, "seed": seed}))
        run.chmod(0o600)
        (folder / "graded").mkdir(exist_ok=True)
        for part in (folder / "graded").glob(".*"):  # of a grader that was stopped
            part.unlink()
        yield Journal(folder, seed)


def assignment_of(folder: Path) -> str:
    """What the results in a folder are of."""
    if stored := _stored(folder / "run.json"):
        return stored["assignment"]
    raise Refused(f"{folder} holds no results of this grader")


def _stored(run: Path) -> dict[str, str]:
    """What run.json says; nothing where there is none."""
    try:
        says = json.loads(run.read_text(encoding="utf-8"))
        return {name: str(says[name]) for name in ("assignment", "seed")}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError):
        raise Refused(f"{run} can't be read as the grader wrote it") from None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep a second grader out; the system forgets the lock of one that was killed."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"another grader is at work in {folder}") from None
        yield


def _result(record: dict[str, Any]) -> Result:
    verdicts = [verdict_of(each) for each in record.pop("verdicts")]
    return Result(**record, verdicts=verdicts)


def verdict_of(record: dict[str, Any]) -> Verdict:
    outcomes = [Outcome(**each) for each in record.pop("outcomes")]
    return Verdict(**record, outcomes=outcomes)
