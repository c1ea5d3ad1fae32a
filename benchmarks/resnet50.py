"""The shapes of ResNet-50's trainable tensors: many small ones. Pure."""

from __future__ import annotations

from collections.abc import Iterator

Shape = tuple[int, ...]

# Of each stage: its blocks, and the channels of their narrow part.
_STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
_EXPANSION = 4
_CLASSES = 1000


def _convolution(extent: int, inputs: int, outputs: int) -> Iterator[Shape]:
    """A square convolution without bias, and gamma and beta of the batch normalization that follows."""
    yield (extent, extent, inputs, outputs)
    yield (outputs,)
    yield (outputs,)


def _bottleneck(inputs: int, channels: int, first: bool) -> Iterator[Shape]:
    outputs = channels * _EXPANSION
    yield from _convolution(1, inputs, channels)
    yield from _convolution(3, channels, channels)
    yield from _convolution(1, channels, outputs)
    if first:  # Its shortcut has to change the number of channels.
        yield from _convolution(1, inputs, outputs)


def shapes() -> Iterator[Shape]:
    """Shapes in the network's order (He et al. 2015, table 1), as TensorFlow has them: height, width, in, out."""
    yield from _convolution(7, 3, 64)
    inputs = 64
    for blocks, channels in _STAGES:
        for number in range(blocks):
            yield from _bottleneck(inputs, channels, first=number == 0)
            inputs = channels * _EXPANSION
    yield (inputs, _CLASSES)
    yield (_CLASSES,)
