"""Which parts of gradients are sent: `Settings.compress` in `job.proto`."""

from __future__ import annotations

import re
from fractions import Fraction

_TOPK = re.compile(r"topk:(\d{1,20}|\d{0,20}\.\d{1,20})", re.ASCII)


def check_compress(text: str) -> None:
    """Takes an empty text, and "topk:RATIO" with a decimal above 0 and at most 1.

    Raises:
        ValueError: the text has another form.
    """
    found = _TOPK.fullmatch(text)
    if text and not (found and 0 < Fraction(found[1]) <= 1):
        raise ValueError("must be topk:RATIO, a decimal above 0 and at most 1")
