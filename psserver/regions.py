"""Regions of an image as flat arrays, their gaps filled so that no update makes anything of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grpc_ps.client.shared.image import Region, numpy_dtype
from grpc_ps.psserver.checkpoint import BlockValues

Array = npt.NDArray[Any]

_SQUARES = "accumulator"
"""The slot that an update divides by the root of: in a gap, where values and gradients are 0, it must not be 0 too."""


@dataclass(frozen=True, slots=True)
class RegionValues:
    """What a region begins with: flat arrays of its values and of its slots by name, gaps included."""

    value: Array
    slots: Mapping[str, Array]


def gap_of(slot: str, first: float) -> float:
    """What the gaps of a slot have that begins with `first`; the gaps of values are 0 (`slot` empty)."""
    return 1.0 if slot == _SQUARES and first == 0 else first


def assembled(region: Region, blocks: Sequence[Array], gap: float) -> Array:
    """Returns a region's elements, put together from those of its blocks, with `gap` between them."""
    array = np.full(region.size, gap, numpy_dtype(region.dtype))
    for (_, span), block in zip(region.spans(), blocks, strict=True):
        array[span] = block
    return array


def region_values(region: Region, blocks: Sequence[BlockValues]) -> RegionValues:
    """Puts together what a region's blocks begin with, the same slots each."""
    slots = {
        # A gap is where a gradient never is, so it does not matter what the slot began with.
        name: assembled(region, [block.slots[name] for block in blocks], gap_of(name, 0.0))
        for name in blocks[0].slots
    }
    return RegionValues(assembled(region, [block.value for block in blocks], 0.0), slots)
