"""The exception for mistakes that the caller can correct."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["UserError", "nearest"]


class UserError(ValueError):
    """Invalid input. The message gives the value, what is expected and a remedy; the command line prints only the message."""


def nearest(word: str, options: Iterable[str]) -> str:
    """Return a hint for a misspelt word: the closest option, if one is similar, followed by all options.

    >>> nearest("darci", ["darcy", "burgers"]), nearest("heat", ["darcy", "burgers"])
    ("did you mean 'darcy'? Expected one of darcy, burgers", 'expected one of darcy, burgers')
    """
    options = list(options)
    close = get_close_matches(word, options, n=1)
    listing = ", ".join(options)
    return f"did you mean {close[0]!r}? Expected one of {listing}" if close else f"expected one of {listing}"
