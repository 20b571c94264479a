"""Grade in several processes at once, each of which may be lost without the others.

A helper grades one question after another and reports each verdict at once. Where it ends or takes
too long, the question that it was at is lost; a new helper goes on with the next.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from .grading import Plan, grade, lost
from .journal import Refused, verdict_of
from .model import Verdict
from .sandbox import Sandbox

# Beside what a student's code may take: the checks' own work, on a machine that may be busy.
SPARE_SECONDS = 120.0
START_SECONDS = 300.0
CONTEXT = multiprocessing.get_context("spawn")  # a fork would share what is to be apart


@dataclass
class Work:
    """A submission on its way: the code of its cells, and what is known of it so far."""

    key: str
    cells: Sequence[str]
    given: Sequence[int] = ()  # the numbers, from 1, of cells that the student got so
    verdicts: list[Verdict] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def grade_all(
    plan: Plan, works: Iterable[Work], jobs: int, finished: Callable[[Work], None]
) -> None:
    """Grade every work, and hand each over as soon as it has all its verdicts."""
    waiting = deque(works)
    helpers = [Helper(plan) for _ in range(min(jobs, len(waiting)))]
    try:
        while waiting or any(helper.work for helper in helpers):
            for helper in helpers:
                if helper.ready and helper.work is None and waiting:
                    helper.take(waiting.popleft())
            for helper in _heard(helpers):
                if helper.listen():
                    finished(helper.give())
    finally:
        for helper in helpers:
            helper.stop(seconds=0.0 if helper.is_busy else 10.0)


def _heard(helpers: Sequence[Helper]) -> list[Helper]:
    """Those who have said something, or are too late; it waits until there is one."""
    heard = wait(
        [helper.connection for helper in helpers if helper.is_busy],
        timeout=max(0.0, min(h.deadline for h in helpers if h.is_busy) - time.monotonic()),
    )
    now = time.monotonic()
    return [h for h in helpers if h.is_busy and (h.connection in heard or h.deadline <= now)]


class Helper:
    """A process of its own with a sandbox of its own, seen from here."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.work: Work | None = None
        self._start()

    @property
    def is_busy(self) -> bool:
        return self.work is not None or not self.ready

    def take(self, work: Work) -> None:
        self.work = work
        self._send()

    def give(self) -> Work:
        work, self.work = self.work, None
        assert work is not None
        return work

    def listen(self) -> bool:
        """Hear what it says, or find that it says nothing any more; whether its work is done."""
        try:
            said = json.loads(self.connection.recv_bytes()) if self.connection.poll() else None
        except (EOFError, OSError):
            said = {"ended": True}
        if not self.ready:
            self._started(said)
        elif said is None or "ended" in said:
            self._lose(f"did not end within {self._seconds:.0f} seconds" if said is None else "")
        else:
            self._record(said)
        return self.work is not None and len(self.work.verdicts) == len(self._questions)

    def stop(self, seconds: float = 10.0) -> None:
        """End it, by force if it does not end by itself; all in its sandbox ends with it."""
        self.connection.close()
        self.process.join(seconds)
        self.process.kill()
        self.process.join()

    @property
    def _questions(self) -> Sequence[str]:
        return [question.grade_id for question in self.plan.assignment.questions]

    @property
    def _seconds(self) -> float:
        return self.plan.limits.total_seconds + SPARE_SECONDS

    def _start(self) -> None:
        self.connection, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=serve, args=(self.plan, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.ready = False
        self.deadline = time.monotonic() + START_SECONDS

    def _started(self, said: dict[str, Any] | None) -> None:
        if said is None or "ready" not in said:
            why = (said or {}).get("failed", "its process ended, or did not begin")
            raise Refused(f"the grader can't start a helper: {why}")
        self.ready = True
        if self.work:
            self._send()

    def _send(self) -> None:
        """Ask for what is still to be graded of its work."""
        assert self.work is not None
        self.deadline = time.monotonic() + self._seconds
        left = self._questions[len(self.work.verdicts) :]
        with suppress(OSError):  # it has just ended: that is heard when we listen
            self.connection.send((self.work.key, self.work.cells, self.work.given, left))

    def _record(self, said: dict[str, Any]) -> None:
        assert self.work is not None
        self.deadline = time.monotonic() + self._seconds
        self.work.verdicts.append(verdict_of(said["verdict"]))
        self.work.errors = self.work.errors or list(said["errors"])

    def _lose(self, why: str) -> None:
        """Give up the question that it was at, and go on with a new process."""
        assert self.work is not None
        why = why or "ended the process that checks it"
        question = self.plan.assignment.questions[len(self.work.verdicts)]
        most = self.plan.points[question.grade_id]
        self.work.verdicts.append(lost(question, most, f"This question {why}.", [why]))
        self.stop(seconds=0.0)
        self._start()


# In the helper's process


def serve(plan: Plan, connection: Connection) -> None:
    """Grade what is asked for, until the grader hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the grader ends us
    torch.set_num_threads(1)
    questions = {question.grade_id: question for question in plan.assignment.questions}
    with suppress(EOFError, OSError), Sandbox(plan.limits, plan.level) as sandbox:
        _say(connection, _tried(sandbox))
        while True:
            key, cells, given, wanted = connection.recv()
            for grade_id in wanted:
                verdict, errors = grade(sandbox, plan, cells, given, key, questions[grade_id])
                _say(connection, {"verdict": asdict(verdict), "errors": errors})


def _tried(sandbox: Sandbox) -> dict[str, Any]:
    """Ready, if a process for students starts here: else all would lose all points."""
    try:
        with sandbox.student([]):
            return {"ready": True}
    except (RuntimeError, OSError) as error:
        return {"failed": str(error)}


def _say(connection: Connection, content: dict[str, Any]) -> None:
    connection.send_bytes(json.dumps(content).encode())
