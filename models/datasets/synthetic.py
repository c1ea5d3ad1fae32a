"""Random images for load: the same in every process, with nothing in them to be learnt."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from grpc_ps.models.datasets.arrays import ArrayDataset
from grpc_ps.models.spec import DataBundle

EXAMPLES = 10_000


def load(directory: Path | None = None) -> DataBundle:
    """10,000 images of 28x28 in ten classes and no test set; `directory` is not used."""
    # Raw words: numpy keeps a bit generator's stream for ever, but not what its distributions make of it.
    words = np.random.PCG64(0).random_raw(EXAMPLES * (784 // 8 + 1))
    pixels = words[: EXAMPLES * (784 // 8)].view(np.uint8).reshape(EXAMPLES, 784)
    labels = (words[EXAMPLES * (784 // 8) :] % np.uint64(10)).astype(np.int32)
    train = ArrayDataset(pixels, labels)
    return DataBundle(train=train, test=None, description=f"synthetic, {EXAMPLES} random images")
