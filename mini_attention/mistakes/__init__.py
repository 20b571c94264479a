"""A collection of wrong programs: each makes one mistake that people have made, and no other.

`MISTAKES` has them by name. The checks recognise a reader's mistake by what these programs
answer, and the tests of the package have to fail with each of them in its place. `RUNNING` has
those of a softmax that is put together piece by piece, which stand in nothing's place.
"""

from . import formula, hiding, layers, masks, positions, running, training
from .catalogue import MISTAKES, RUNNING, Mistake

__all__ = [
    "MISTAKES",
    "RUNNING",
    "Mistake",
    "formula",
    "hiding",
    "layers",
    "masks",
    "positions",
    "running",
    "training",
]
