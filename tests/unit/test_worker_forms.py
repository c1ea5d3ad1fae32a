"""The `worker` command beside training: first values, --check, `placement`, `evaluate`, and starting again."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import NoReturn

import click
import numpy as np
import pytest
from worker_command import LINEAR, called, config_of, run

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.worker.command import choose, start_again, worker
from grpc_ps.worker.subcommands import evaluate, placement

USER_MODEL = """
from grpc_ps.models.datasets.line import load
from grpc_ps.models.linear import Linear
class Mine(Linear):
    data = staticmethod(load)
"""

FAILING_METRICS = """
from grpc_ps.models.mnist import Mnist
class Mine(Mnist):
    def metrics(self, features, labels):
        raise KeyError("oops")
"""


def saved(folder: Path, **values: np.ndarray) -> Path:
    path = folder / "weights.npz"
    np.savez(path, **values)
    return path


def test_first_values_from_a_file(tmp_path: Path) -> None:
    path = saved(tmp_path, w=np.zeros(1), b=np.ones(1))
    config = config_of(*LINEAR, "--init-from", str(path))
    assert config.initial is not None
    assert config.initial.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert config.initial.tensors.keys() == {"w", "b"}


def test_a_bad_file_of_first_values_is_found_without_tensorflow(tmp_path: Path) -> None:
    path = saved(tmp_path, w=np.zeros(1))
    path.write_bytes(path.read_bytes()[:-5])
    done = run(*LINEAR, "--init-from", str(path))
    assert (done.returncode, done.stdout) == (3, "imported grpc\n")
    assert done.stderr.startswith(f"worker: error: {path}: cannot be read as weights: ")
    assert done.stderr.count("\n") == 1


def test_check_knows_whether_first_values_fit_the_model(tmp_path: Path) -> None:
    path = saved(tmp_path, w=np.zeros(1), b=np.ones(2))
    done = called("--check", "--model", "linear", "--init-from", str(path))
    assert done.returncode == 3
    assert done.stderr == f"worker: error: {path}: parameter 'b' has shape [2], the model's has [1]\n"


def test_check_reads_first_values_whole(tmp_path: Path) -> None:
    path = saved(tmp_path, w=np.zeros(1), b=np.full(1, np.nan))
    done = called("--check", "--model", "linear", "--init-from", str(path))
    says = f"{path}: parameter 'b' has values that are not finite as float32"
    assert (done.returncode, done.stderr) == (3, f"worker: error: {says}\n")


def test_check_warns_of_first_values_that_are_not_used(tmp_path: Path) -> None:
    path = saved(tmp_path, w=np.zeros(1), b=np.zeros(1), c=np.zeros(1))
    done = called("--check", "--model", "linear", "--init-from", str(path))
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line.partition(" ")[2]) == (0, f"worker init_from_unused file={path} parameters=c")


def test_check_knows_that_endless_data_has_no_epochs(tmp_path: Path) -> None:
    says = "worker: error: --epochs 2: the data 'line-0.1-0.3' has no epochs; set --steps\n"
    done = run("--check", "--model", "linear", "--epochs", "2")
    assert (done.returncode, done.stdout, done.stderr) == (2, "imported grpc\n", says)
    path = tmp_path / "mine.py"
    path.write_text(USER_MODEL)
    done = called("--check", "--model", f"{path}:Mine", "--epochs", "2")
    assert (done.returncode, done.stderr) == (2, says)
    assert called("--check", "--model", "mnist", "--epochs", "2").returncode == 0


@pytest.mark.parametrize(
    ("model", "until", "says"),
    [
        ("mnist", "acuracy>=0.9", "--until: the model has no metric acuracy; it has: accuracy, loss"),
        ("linear", "error<=0.1", "--until: there is no test set to find error on; choose other data, or set --steps"),
        ("mnist", "loss<=0.1", ""),
    ],
)
def test_check_knows_whether_the_metric_is_there(model: str, until: str, says: str) -> None:
    done = called("--check", "--model", model, "--until", until)
    assert (done.returncode, done.stderr) == ((2, f"worker: error: {says}\n") if says else (0, ""))


def test_check_of_metrics_that_fail(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FAILING_METRICS)
    done = called("--check", "--model", f"{path}:Mine", "--until", "accuracy=0.9")
    says = f"worker: error: --model {path}:Mine: KeyError: 'oops' (mine.py, line 5)\n"
    assert (done.returncode, done.stderr) == (2, says)


def test_check_of_our_models_needs_no_tensorflow() -> None:
    done = run("--check", "--model", "mnist", "--model-arg", "hidden=5")
    assert (done.returncode, done.stdout, done.stderr) == (0, "imported grpc\n", "")


def test_check_makes_a_users_model(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(USER_MODEL)
    text = f"{path}:Mine"
    done = called("--check", "--model", text)
    assert (done.returncode, done.stderr) == (0, "")
    path.write_text(path.read_text().replace("(load)", "(lambda directory: 1 / 0)"))
    done = called("--check", "--model", text)
    says = "the data of model 'linear' cannot be loaded: ZeroDivisionError: division by zero (mine.py, line 5)"
    assert (done.returncode, done.stderr) == (3, f"worker: error: {says}\n")
    path.write_text("def f(:\n")
    assert called("--check", "--model", text).returncode == 2


def test_the_forms_of_the_command() -> None:
    assert choose(["placement", "--json"]) == (placement, "worker placement", ["--json"])
    assert choose(["evaluate"]) == (evaluate, "worker evaluate", [])
    for arguments in ([], ["--ps", "a:1"], ["-h"]):
        assert choose(arguments) == (worker, "worker", arguments)
    with pytest.raises(click.UsageError, match=r"^unknown command placment \(did you mean placement\?\)$"):
        choose(["placment"])


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("placement",), "Missing option '--model'."),
        (("placement", "--model", "mnist", "--ps", "a:1"), "unknown option --ps"),
        (("placement", "--model", "mnits"), "--model: unknown model 'mnits', did you mean 'mnist'?"),
        (("evaluate", "--model", "mnist"), "Missing option '--ps'."),
        (("evaluate", "--ps", "a", "--model", "mnist"), "--ps: item 1 of 1 'a' has no port"),
        (("evaluate", "--ps", "a:1", "--model", "mnist", "--steps", "3"), "unknown option --steps"),
    ],
)
def test_usage_of_the_other_forms(args: tuple[str, ...], says: str) -> None:
    done = run(*args)
    assert (done.returncode, done.stdout) == (2, "imported grpc\n")
    assert done.stderr.startswith(f"worker: error: {says}")
    assert done.stderr.count("\n") == 1


def test_placement_lists_the_parameters_of_a_model() -> None:
    done = run("placement", "--model", "mnist", "--model-arg", "hidden=5", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    line, imported = done.stdout.splitlines()
    assert json.loads(line)["parameters"][1:3] == [
        {"name": "hid_b", "shape": [5], "dtype": "float32", "trainable": True},
        {"name": "sm_w", "shape": [5, 10], "dtype": "float32", "trainable": True},
    ]
    assert imported == "imported grpc tensorflow"


def test_evaluating_what_has_no_test_set() -> None:
    done = called("evaluate", "--ps", "127.0.0.1:1", "--model", "linear")
    says = "worker: error: --model linear: its data has no test set to evaluate on; choose other data\n"
    assert (done.returncode, done.stderr) == (2, says)


def test_a_worker_starts_again_with_the_jobs_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[object] = []

    def execute(program: str, arguments: list[str]) -> NoReturn:
        became.extend((program, *arguments))
        raise SystemExit

    monkeypatch.setattr(sys, "orig_argv", ["python", "/bin/worker", "--ps", "a:1", "--model", "linear"])
    with pytest.raises(SystemExit):
        start_again(config_of(*LINEAR), 3, execute=execute)
    assert became == [sys.executable, sys.executable, "/bin/worker", *LINEAR, "--threads", "3"]


def test_a_worker_does_not_start_again_twice() -> None:
    with pytest.raises(UsageError, match=r"^--threads 2: the job has 3$"):
        start_again(config_of(*LINEAR, "--threads", "2"), 3)
