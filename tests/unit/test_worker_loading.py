"""What --model can name, and what is said when it names nothing."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.worker.imports import find_attribute
from grpc_ps.worker.loading import check_model, model_factory

MODEL = """
import tensorflow as tf
from grpc_ps.models import ModelDefaults

class Scale:
    name = "scale"
    shown = ("k",)
    data = "line"
    defaults = ModelDefaults(optimizer="sgd", learning_rate=0.1, batch_size=10, steps=5)

    def __init__(self, start=1.0):
        self.k = tf.Variable([float(start)], name="k")
        self.variables = (self.k,)

    def initialize(self, seed):
        self.k.assign([1.0])

    def losses(self, features, labels):
        return self.k * features - labels

    def metrics(self, features, labels):
        return {}

def half(start=1.0):
    return Scale(start / 2)

class Hollow:
    name = "hollow"

constant = 3
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a user's files, which is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.py").write_text(MODEL)
    (tmp_path / "pkg_of_user").mkdir()
    (tmp_path / "pkg_of_user" / "mod.py").write_text(MODEL)
    yield tmp_path
    for name in ("pkg_of_user", "pkg_of_user.mod", "grpc_ps_user_model"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("name", "arguments", "k"),
    [
        ("mine.py:Scale", {}, 1.0),
        ("mine.py:half", {"start": 8}, 4.0),
        ("pkg_of_user.mod:Scale", {"start": 2.5}, 2.5),
    ],
)
def test_a_users_model(name: str, arguments: dict[str, float], k: float) -> None:
    check_model(name, arguments)
    factory = model_factory(name, arguments)
    one, two = factory(), factory()
    assert one.variables[0].numpy().tolist() == [k]
    assert one.variables[0] is not two.variables[0]


def test_our_models_by_name() -> None:
    check_model("mnist", {"hidden": 5, "layers": 2})
    assert len(model_factory("mnist", {"hidden": 5, "layers": 2})().variables) == 6
    assert model_factory("linear", {})().name == "linear"


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        (
            "mnits",
            {},
            "--model: unknown model 'mnits', did you mean 'mnist'? known models: cifar10, embedding, linear, mnist,"
            " or file.py:attribute, or package.module:attribute",
        ),
        (
            "mnist",
            {"hiden": 5},
            "--model-arg hiden=5: mnist has no such argument (did you mean hidden?); it has: hidden, layers",
        ),
        ("mnist", {"layers": 0}, "--model-arg layers=0: must be a whole number from 1 to 100"),
        ("mnist", {"hidden": 1.5}, "--model-arg hidden=1.5: must be a whole number from 1 to 1000000"),
        ("linear", {"x": 1}, "--model-arg x=1: linear has no such argument; it has: none"),
        ("none.py:Scale", {}, "--model none.py:Scale: there is no file none.py"),
        ("mine.py", {}, "--model mine.py: expected file.py:attribute or package.module:attribute"),
        ("mine.py:", {}, "--model mine.py:: expected file.py:attribute or package.module:attribute"),
        (":Scale", {}, "--model :Scale: expected file.py:attribute or package.module:attribute"),
    ],
)
def test_what_is_refused_before_tensorflow(name: str, arguments: dict[str, float], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_model(name, arguments)
    assert str(caught.value) == says


def test_of_many_names_some_are_listed() -> None:
    module = ModuleType("many")
    vars(module).update({f"f{number:02}": print for number in range(12)})
    listed = ", ".join(f"f{number:02}" for number in range(10))
    with pytest.raises(UsageError, match=f"^--model many:nosuch: no nosuch; there are: {listed} and 2 more$"):
        find_attribute("--model many:nosuch", module, "nosuch")


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        (
            "mine.py:Scael",
            {},
            "--model mine.py:Scael: no Scael (did you mean Scale?); there are: Hollow, ModelDefaults, Scale, half",
        ),
        (
            "mine.py:constant",
            {},
            "--model mine.py:constant: is of type int, expected a class or function that makes the model",
        ),
        ("mine.py:Scale", {"start": "x"}, "could not convert string to float: 'x' (mine.py, line 12)"),
        (
            "mine.py:Scale",
            {"begin": 1},
            "cannot be made: TypeError: Scale.__init__() got an unexpected keyword argument 'begin'",
        ),
        (
            "mine.py:Hollow",
            {},
            "--model mine.py:Hollow: Hollow lacks variables, defaults, shown, data, initialize, losses, metrics"
            " (see grpc_ps.models.spec)",
        ),
        (
            "no_such_package.mod:Scale",
            {},
            "--model no_such_package.mod:Scale: cannot import no_such_package.mod: ModuleNotFoundError:"
            " No module named 'no_such_package'",
        ),
    ],
)
def test_what_is_refused_after_importing(name: str, arguments: dict[str, float], says: str) -> None:
    check_model(name, arguments)
    with pytest.raises(UsageError) as caught:
        model_factory(name, arguments)()
    text = str(caught.value)
    assert text.endswith(says)
    assert "\n" not in text


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import sys\nsys.exit(3)\n", "cannot import ends.py: SystemExit: 3 (ends.py, line 2)"),
        ("raise SystemExit\n", "cannot import ends.py: SystemExit: (ends.py, line 1)"),
        ("raise KeyboardInterrupt\n", "cannot import ends.py: KeyboardInterrupt: (ends.py, line 1)"),
        ("def Model():\n    exit(0)\n", "cannot be made: SystemExit: 0 (ends.py, line 2)"),
    ],
)
def test_a_file_that_would_end_the_process_is_named(
    here: Path, monkeypatch: pytest.MonkeyPatch, code: str, says: str
) -> None:
    """As in the command, whose own handler takes signals."""
    monkeypatch.setattr(signal, "getsignal", lambda number: lambda *_: None)
    (here / "ends.py").write_text(code)
    with pytest.raises(UsageError) as caught:
        model_factory("ends.py:Model", {})()
    assert str(caught.value) == f"--model ends.py:Model: {says}"


def test_ctrl_c_in_a_program_stays_one(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.default_int_handler)
    (here / "ends.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        model_factory("ends.py:Model", {})


def test_a_file_that_fails_is_named_with_its_line(here: Path) -> None:
    (here / "broken.py").write_text("import os\n\nprint(undefined)\n")
    with pytest.raises(UsageError) as caught:
        model_factory("broken.py:Scale", {})
    error = "NameError: name 'undefined' is not defined (broken.py, line 3)"
    assert str(caught.value) == f"--model broken.py:Scale: cannot import broken.py: {error}"
    (here / "broken.py").write_text("def f(:\n")
    with pytest.raises(UsageError, match=r"cannot import broken\.py: SyntaxError: .*line 1"):
        model_factory("broken.py:Scale", {})
