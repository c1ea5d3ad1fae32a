"""Ids that are looked up as words are: few of them often, most of them hardly ever (Zipf's law). Without end."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from grpc_ps.models.spec import Array, Batch, DataBundle

EXPONENT = 1.2
DRAWN = 32
"""Examples that there are: a batch takes some of them again, for drawing ids takes longer than a step."""

# Spreads ids that are often looked up over the table, and so over the shards.
_SPREAD = 2654435761


class Zipf:
    """Examples of `ids` ids each of a table of `rows` rows, int64; labels are 1, float32.

    The k-th most frequent id has a probability in proportion to k^-1.2.
    """

    examples = 0

    def __init__(self, rows: int, ids: int) -> None:
        self.fingerprint = f"zipf-{EXPONENT}-{rows}-{ids}"
        self._drawn = _zipf(np.random.PCG64(0), DRAWN * ids, rows).reshape(DRAWN, ids)

    def draw(self, generator: np.random.Generator, count: int) -> Batch:
        """Takes `count` of the examples."""
        # Raw words: numpy keeps a bit generator's stream for ever, but not what its distributions make of it.
        chosen = generator.bit_generator.random_raw(count) % np.uint64(DRAWN)
        return self._drawn[chosen], np.ones(count, np.float32)


def _zipf(words: np.random.PCG64, count: int, rows: int) -> Array:
    """Draws ranks by rejection from a continuous law (Devroye 1986, chapter X.6), and makes ids of them."""
    bound = 2.0 ** (EXPONENT - 1)
    found: list[Array] = []
    while sum(map(len, found)) < count:
        even = (words.random_raw(4 * count) >> np.uint64(11)).reshape(2, -1) * 2.0**-53
        ranks = np.floor((1 - even[0]) ** (-1 / (EXPONENT - 1)))
        ratio = (1 + 1 / ranks) ** (EXPONENT - 1)
        found.append(ranks[even[1] * ranks * (ratio - 1) / (bound - 1) <= ratio / bound])
    ranks = np.minimum(np.concatenate(found)[:count], rows).astype(np.uint64)
    spread: Array = ranks * np.uint64(_SPREAD) % np.uint64(rows)
    return spread.astype(np.int64)


def load(directory: Path | None = None, *, rows: int = 1_000_000, ids: int = 4096) -> DataBundle:
    """Endless examples and no test set; `directory` is not used."""
    text = f"examples of {ids} ids by Zipf's law, of a table of {rows} rows"
    return DataBundle(train=Zipf(rows, ids), test=None, description=text)
