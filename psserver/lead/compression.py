"""Which parts of gradients are sent: `Settings.compress` in `job.proto`."""

from __future__ import annotations

import re
from fractions import Fraction

_TOPK = re.compile(r"topk:(\d{1,20}|\d{0,20}\.\d{1,20})", re.ASCII)
_HALF = Fraction(1, 2)
_THIRD = Fraction(1, 3)


def check_compress(text: str, push_dtype: str) -> None:
    """Takes an empty text, and "topk:RATIO" with a decimal above 0 by which pushes become shorter.

    An index of 4 bytes goes with each element: half of them in float32, or a third in 16 bits, are as long as all.

    Raises:
        ValueError: the text is another one.
    """
    found = _TOPK.fullmatch(text)
    limit = _HALF if push_dtype == "float32" else _THIRD
    if text and not (found and 0 < Fraction(found[1]) < limit):
        rule = f"a decimal above 0 and below {limit} with push_dtype {push_dtype}: else pushes are not shorter"
        raise ValueError(f"must be topk:RATIO, {rule}")
