"""The one exception that means "the caller can put this right"."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["UserError", "nearest"]


class UserError(ValueError):
    """Wrong input. Its message says what was got, what is expected and what to do; the command line prints just that."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelt word: the nearest known one if there is one, then all of them.

    >>> nearest("darci", ["darcy", "burgers"])
    "did you mean 'darcy'? Known: darcy, burgers"
    """
    known = list(known)
    close = get_close_matches(word, known, n=1)
    everything = f"Known: {', '.join(known)}"
    return f"did you mean {close[0]!r}? {everything}" if close else everything
