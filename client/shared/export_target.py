"""Where a model may be exported to, and in which form: for `psctl export` and the worker command that it starts."""

from __future__ import annotations

from pathlib import Path

from grpc_ps.client.shared.errors import UsageError

WEIGHTS = ("safetensors", "npz")
MODELS = ("keras", "saved-model")
_FILES = (*WEIGHTS, "keras")
_MARK = "saved_model.pb"


def form_of(name: str) -> str:
    """The form that a name asks for: by its end, or for a folder, `DIR/` or one that is there, a SavedModel.

    Raises:
        UsageError: it says none, or two.
    """
    path = Path(name)
    form = path.suffix.removeprefix(".")
    if form in _FILES and name.endswith("/"):
        raise UsageError(f"{name}: .{form} is for a file, and / for the folder of a SavedModel; leave one out")
    if form in _FILES:
        return form
    if name.endswith("/") or path.is_dir():
        return "saved-model"
    raise UsageError(
        f"{name}: the name of a file of weights ends in .safetensors or .npz, of a Keras model in .keras, and of a"
        " SavedModel's folder in /"
    )


def check_target(path: Path, form: str, *, force: bool) -> None:
    """Refuses a place that cannot be written to before anything is read.

    Raises:
        UsageError: what is wrong with it.
    """
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.absolute().parent}")
    if form != "saved-model" and path.suffix != f".{form}":
        raise UsageError(f"{path}: --format {form} is for a name that ends in .{form}")
    if form == "saved-model":
        if path.suffix.removeprefix(".") in _FILES:
            raise UsageError(f"{path}: {path.suffix} is for a file, and --format {form} makes a folder; leave one out")
        _check_folder(path, force=force)
    elif path.is_dir() or (path.exists() and not force):
        raise UsageError(f"{path}: {'is a folder' if path.is_dir() else 'is there already; --force replaces it'}")


def _check_folder(path: Path, *, force: bool) -> None:
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path}: is a file, and a SavedModel a folder")
    if not path.is_dir() or not any(path.iterdir()):
        return
    if not (path / _MARK).is_file():
        raise UsageError(f"{path}: has something else in it than a SavedModel")
    if not force:
        raise UsageError(f"{path}: is there already; --force replaces it")
