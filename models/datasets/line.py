"""Points of the line y = 0.1 x + 0.3, without end: the first seed's data."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from grpc_ps.models.spec import Batch, DataBundle

SLOPE = 0.1
INTERCEPT = 0.3


class Line:
    """Draws x uniformly from [0, 1); y is on the line. Both are float32 of shape [count]."""

    examples = 0
    fingerprint = "line-0.1-0.3"

    def draw(self, generator: np.random.Generator, count: int) -> Batch:
        """Draws `count` points."""
        x = generator.random(count, dtype=np.float32)
        return x, x * np.float32(SLOPE) + np.float32(INTERCEPT)


def load(directory: Path | None = None) -> DataBundle:
    """Endless points and no test set; `directory` is not used."""
    return DataBundle(train=Line(), test=None, description=f"points of y = {SLOPE} x + {INTERCEPT}")
