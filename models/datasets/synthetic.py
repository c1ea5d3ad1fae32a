"""Random images for load: the same in every process, with nothing in them to be learnt."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from grpc_ps.models.datasets.arrays import ArrayDataset
from grpc_ps.models.datasets.idx import CLASSES, SIDE
from grpc_ps.models.spec import DataBundle

EXAMPLES = 10_000
PIXELS = SIDE * SIDE
# A raw word of the generator has eight pixels; one more word of each example has its label.
_PIXEL_WORDS = PIXELS // 8


def load(directory: Path | None = None) -> DataBundle:
    """10,000 images of 28x28 in ten classes and no test set; `directory` is not used."""
    # Raw words: numpy keeps a bit generator's stream for ever, but not what its distributions make of it.
    words = np.random.PCG64(0).random_raw(EXAMPLES * (_PIXEL_WORDS + 1))
    pixels = words[: EXAMPLES * _PIXEL_WORDS].view(np.uint8).reshape(EXAMPLES, PIXELS)
    labels = (words[EXAMPLES * _PIXEL_WORDS :] % np.uint64(CLASSES)).astype(np.int32)
    train = ArrayDataset(pixels, labels)
    return DataBundle(train=train, test=None, description=f"synthetic, {EXAMPLES} random images")
