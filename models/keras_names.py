"""Names of a Keras model's weights that are the same in every process, and whatever was made there before."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def weight_names(model: Any) -> list[str]:
    """The names of `model.weights`, in that order: their Keras paths, each once.

    Keras numbers what has no name of its own as it is made in the process: `dense_3` of a second model is `dense` of
    the first. Such numbers are given anew within the model. Where layers or variables share a path, as a subclassed
    model allows, the later ones get a number behind it.
    """
    layers = layer_names(model)
    taken: set[str] = set()
    names = []
    for weight in model.weights:
        *parents, own = weight.path.split("/")
        own = re.sub(r"^variable_\d+$", "variable", own)  # Of a weight that was added without a name.
        path = "/".join([*(layers.get(parent, parent) for parent in parents), own])
        names.append(_free(path, taken))
        taken.add(names[-1])
    return names


def layer_names(model: Any) -> Mapping[str, str]:
    """The layers' names, the model's own too, and what takes their place."""
    layers = list(model._flatten_layers())
    automatic = {layer.name: base for layer in layers if (base := _base(layer)) is not None}
    taken = {layer.name for layer in layers} - automatic.keys()
    found = {}
    for name, base in automatic.items():
        found[name] = _free(base, taken)
        taken.add(found[name])
    return found


def _base(layer: Any) -> str | None:
    """What Keras made the layer's name of, None if it was named by somebody."""
    words = re.sub(r"\W+", "", type(layer).__name__)
    words = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", words)
    base = re.sub("([a-z])([A-Z])", r"\1_\2", words).lower()
    return base if re.fullmatch(rf"{re.escape(base)}(_\d+)?", layer.name) else None


def _free(name: str, taken: set[str]) -> str:
    found, number = name, 0
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found
