"""Students' code in processes of its own: it gets inputs and returns plain data.

    with Sandbox() as sandbox, sandbox.student(cells) as student:
        check_attention(student.function("attention"))

`level()` says what this system allows, and `PROMISES` what each level can and can't stop. Whatever
the level, the comparison happens in the grader's process, which runs no line of a student's.
"""

from .levels import PROMISES, level, why_not_contained
from .limits import Limits
from .remote import RemoteStudent, Stopped
from .start import Sandbox

__all__ = [
    "PROMISES",
    "Limits",
    "RemoteStudent",
    "Sandbox",
    "Stopped",
    "level",
    "why_not_contained",
]
