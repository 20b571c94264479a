"""A collection of wrong programs: each makes one mistake that people have made, and no other.

`MISTAKES` has them by name. The checks recognise a reader's mistake by what these programs
answer, and the tests of the package have to fail with each of them in its place.
"""

from . import formula, hiding, layers, masks, training
from .catalogue import MISTAKES, Mistake

__all__ = ["MISTAKES", "Mistake", "formula", "hiding", "layers", "masks", "training"]
