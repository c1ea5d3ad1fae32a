"""Colour images as TensorFlow's CIFAR-10 tutorial feeds them: crops of 24x24, standardized one by one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from grpc_ps.models.spec import Array, Batch

SIDE = 24
"""Rows and columns of a crop."""

CHANNELS = 3

BRIGHTNESS = 63.0
"""Most that is added to a pixel of 0 to 255, or taken away."""

CONTRAST = (0.2, 1.8)
"""Least and largest factor of a pixel's distance from the mean of its channel."""

Floats = npt.NDArray[np.float32]


class Crops:
    """Images of which training sees crops that are distorted at random, and evaluation the middle as it is.

    They stay bytes in memory. Features are float32 of shape [batch, 24, 24, 3], of mean 0 and, but for images of one
    colour, of deviation 1; labels are int32.

    Args:
        images: uint8, shape [examples, 3, rows, columns] with planes of red, green and blue; never written to.
        labels: one for each.
        contents: says which images and labels these are.
    """

    def __init__(self, images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int32], contents: str) -> None:
        self._images = images
        self._labels = labels
        self.examples = len(labels)
        # What is made of the images is a part of it: all workers of a job have to do the same.
        self.fingerprint = f"crops{SIDE}-{contents}"

    def take(self, indices: npt.NDArray[np.int64]) -> Batch:
        """The middles of the images at `indices`, standardized."""
        middle = [(extent - SIDE) // 2 for extent in self._images.shape[2:]]
        planes = self._crops(indices, np.tile(middle, (len(indices), 1)), np.zeros(len(indices), np.bool_))
        return _features(planes), self._labels[indices]

    def augment(self, indices: npt.NDArray[np.int64], generator: np.random.Generator) -> Batch:
        """Crops at random places, mirrored or not, of other brightness and contrast, then standardized.

        Five uniform numbers an image say which. They are made of raw words, which NumPy keeps the same for ever: a seed
        means the same for whatever version of it.
        """
        count = len(indices)
        words = generator.bit_generator.random_raw(5 * count)
        top, left, mirrored, bright, contrast = (words >> np.uint64(11)).reshape(5, count) * 2.0**-53
        rows, columns = self._images.shape[2:]
        corners = np.stack([top * (rows - SIDE + 1), left * (columns - SIDE + 1)], axis=1).astype(np.int64)
        planes = self._crops(indices, corners, mirrored < 0.5)
        # Standardization takes brightness away again, in the tutorial as here: nothing is clipped in between.
        planes += _column((2 * bright - 1) * BRIGHTNESS)
        scale_contrast(planes, _column(CONTRAST[0] + contrast * (CONTRAST[1] - CONTRAST[0])))
        return _features(planes), self._labels[indices]

    def _crops(self, indices: npt.NDArray[np.int64], corners: Array, mirrored: npt.NDArray[np.bool_]) -> Floats:
        """Crops as planes, shape [batch, 3, 24 * 24]: along the last axis sums are fast and exact."""
        crops = np.empty((len(indices), CHANNELS, SIDE, SIDE), np.float32)
        for crop, index, (row, column), mirror in zip(crops, indices, corners, mirrored, strict=True):
            found = self._images[index, :, row : row + SIDE, column : column + SIDE]
            crop[...] = found[..., ::-1] if mirror else found
        return crops.reshape(len(indices), CHANNELS, SIDE * SIDE)


def _column(values: Array) -> Floats:
    """One number for each image."""
    return values.astype(np.float32)[:, None, None]


def scale_contrast(planes: Floats, factors: Floats) -> None:
    """Scales in place the distance of each pixel from the mean of its image's channel (`tf.image.adjust_contrast`)."""
    means = planes.mean(axis=2, keepdims=True)
    planes -= means
    planes *= factors
    planes += means


def standardize(planes: Floats) -> None:
    """Makes in place the mean of each image 0 and its deviation 1 (`tf.image.per_image_standardization`).

    A deviation below 1 / sqrt(elements) counts as that, so an image of one colour becomes zeros.
    """
    planes -= planes.mean(axis=(1, 2), keepdims=True)
    deviation = np.sqrt(np.square(planes).mean(axis=(1, 2), keepdims=True))
    planes /= np.maximum(deviation, np.float32(1 / np.sqrt(planes[0].size)))


def _features(planes: Floats) -> Floats:
    standardize(planes)
    # A view: whoever copies the batch into place puts the channels last on the way.
    return planes.reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1)
