"""The `worker` command: what is refused, with which exit code, and before what is imported."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest
from worker_command import LINEAR, MNIST, config_of, run

from grpc_ps.client.shared.errors import PsError, UsageError
from grpc_ps.client.shared.security import Security
from grpc_ps.worker.config import WorkerConfig
from grpc_ps.worker.device import parse_device
from grpc_ps.worker.flags import parse_value


def refusal(*args: str) -> str:
    with pytest.raises((click.UsageError, PsError)) as caught:
        config_of(*args)
    error = caught.value
    assert error.exit_code == 2
    return error.format_message() if isinstance(error, click.ClickException) else str(error)


def test_the_defaults() -> None:
    config = config_of("--ps", "a:1", "--model", "linear")
    assert config == WorkerConfig(addresses=("a:1",), model="linear", arguments={}, stated={}, security=Security())


def test_everything_that_is_stated() -> None:
    config = config_of(
        *("--ps", "a:1, b:2", "--model", "mnist", "--model-arg", "hidden=64", "--model-arg", "layers=2"),
        *("--mode", "sync", "--workers", "2", "--backup", "1", "--steps", "30", "--batch-size", "7", "--seed", "9"),
        *("--optimizer", "momentum", "--lr", "0.5", "--momentum", "0.8", "--nesterov", "--index", "2"),
        *("--eval-every", "10", "--device", "cpu:1", "--threads", "1", "--connect-timeout", "3", "--json"),
        *("--data-dir", "here"),
    )
    assert config.addresses == ("a:1", "b:2")
    assert config.arguments == {"hidden": 64, "layers": 2}
    assert config.stated == {
        "mode": "sync",
        "workers": 2,
        "backup": 1,
        "steps": 30,
        "batch_size": 7,
        "seed": 9,
        "optimizer": "momentum",
        "learning_rate": 0.5,
        "momentum": 0.8,
        "nesterov": True,
        "eval_every": 10,
        "threads": 1,
    }
    assert (config.index, config.device, config.threads) == (2, "CPU:1", 1)
    assert (config.connect_timeout, config.json, config.data, config.data_dir) == (3.0, True, None, Path("here"))


@pytest.mark.parametrize(("text", "value"), [("3", 3), ("-0.5", -0.5), ("1e3", 1000.0), ("relu", "relu"), ("", "")])
def test_values_of_model_arguments(text: str, value: object) -> None:
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((*LINEAR, "--model-arg", "x"), "--model-arg x: must be NAME=VALUE"),
        ((*MNIST, "--model-arg", "layers=1", "--model-arg", "layers=2"), "--model-arg layers=2: layers is given twice"),
        ((*LINEAR, "--data", "digits"), "--data digits: this model has its own data ('line')"),
        ((*MNIST, "--data", "digits", "--data-dir", "d"), "--data digits and --data-dir d exclude each other"),
        (
            (*MNIST, "--data", "digit"),
            "--data digit: this model takes digits, synthetic or file.py:attribute (did you mean digits?)",
        ),
        ((*MNIST, "--data", "cifar"), "--data cifar: this model takes digits, synthetic or file.py:attribute"),
        (
            ("--ps", "a:1", "--model", "m:f", "--data", "digit"),
            "--data digit: must be digits, synthetic, some of data_batch_1 to data_batch_5 or file.py:attribute"
            " (did you mean digits?)",
        ),
        (
            ("--ps", "a:1", "--model", "embedding", "--overlap"),
            "--overlap: not for a model with tables, whose rows come with the parameters of a step",
        ),
        ((*MNIST, "--download"), "--download: needs --data-dir, the folder to download into"),
        ((*MNIST, "--data-dir", "d", "--download-url", "http://a"), "--download-url http://a: only with --download"),
        (
            (*MNIST, "--data-dir", "d", "--download", "--download-url", "a/b"),
            "--download-url a/b: must be an address as http://HOST/FOLDER",
        ),
        ((*LINEAR, "--device", "tpu:0"), "--device tpu:0: must be cpu:N or gpu:N"),
        ((*LINEAR, "--threads", "0"), "--threads 0: must be 1 to 1024"),
        ((*LINEAR, "--eval-every", "0"), "--eval-every 0: must be at least 1"),
        ((*LINEAR, "--connect-timeout", "inf"), "--connect-timeout inf: must be a finite number above 0"),
        (("--model", "linear"), "--ps: must be given: HOST:PORT,..., the lead shard first"),
        (("--ps", "a:1"), "Missing option '--model'."),
        (
            (*LINEAR, "--mode", "sync", "--overlap"),
            "--overlap: only with --mode async; in sync no gradient is stale",
        ),
    ],
)
def test_usage(args: tuple[str, ...], says: str) -> None:
    assert refusal(*args) == says


@pytest.mark.parametrize("ps", ["", ",", "a:1,", ",a:1", "a:1,,b:2", "a", "a:", ":1", "a:0", "a:70000", "a:x"])
def test_b07_bad_lists_of_shards(ps: str) -> None:
    assert refusal("--ps", ps, "--model", "linear").startswith("--ps")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--index", "-1"), "--index -1: must be 0 or more"),
        (("--index", "3", "--workers", "3"), "--index 3: must be 0 to 2 with 3 workers"),
        (("--index", "4", "--workers", "3", "--backup", "1"), "--index 4: must be 0 to 3 with 4 workers"),
        (("--index", "1", "--workers", "1"), "--index 1: must be 0 to 0 with 1 worker"),
        (("--workers", "0"), "--workers 0: must be at least 1"),
        (("--backup", "-1"), "--backup -1: must be 0 or more"),
        (("--steps", "-5"), "--steps -5: must be at least 1"),
        (("--batch-size", "0"), "--batch-size 0: must be at least 1"),
        (("--lr", "nan"), "--learning-rate/--lr nan: must be a finite number above 0"),
    ],
)
def test_b08_numbers_out_of_range(args: tuple[str, ...], says: str) -> None:
    assert refusal(*LINEAR, *args) == says


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (
            ("--ps", "a:1", "--model", "mnits"),
            "unknown model 'mnits', did you mean 'mnist'? known models: cifar10, embedding, linear, mnist",
        ),
        ((*LINEAR, "--bacth-size", "3"), "unknown option --bacth-size (did you mean --batch-size?)"),
        ((*LINEAR, "-index=1"), "unknown option -index=1 (did you mean --index?)"),
        ((*LINEAR, "--batch", "3"), "unknown option --batch (did you mean --batch-size?)"),
    ],
)
def test_b09_mistyped_flags_and_models(args: tuple[str, ...], says: str) -> None:
    assert says in refusal(*args)


@pytest.mark.parametrize(("text", "name"), [("cpu", "CPU:0"), ("CPU:1", "CPU:1"), ("gpu:0", "GPU:0")])
def test_devices(text: str, name: str) -> None:
    assert parse_device(text) == name


@pytest.mark.parametrize("text", ["", "cpu:", "cpu:x", "cpu:-1", "/device:CPU:0", "cpu:100"])
def test_bad_devices(text: str) -> None:
    with pytest.raises(UsageError, match="must be cpu:N or gpu:N"):
        parse_device(text)


def test_where_summaries_go(tmp_path: Path) -> None:
    config = config_of(*LINEAR, "--logdir", str(tmp_path / "new"), "--summary-every", "7")
    assert (config.logdir, config.summary_every) == (tmp_path / "new", 7)
    assert (tmp_path / "new").is_dir()


def test_b92_summaries_that_cannot_be_written_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault B92: at the start, with exit code 2."""
    file = tmp_path / "file"
    file.touch()
    under = file / "under"
    assert refusal(*LINEAR, "--logdir", str(under)) == f"--logdir {under}: cannot be written: Not a directory"
    assert "is a file" in refusal(*LINEAR, "--logdir", str(file))
    assert refusal(*LINEAR, "--logdir", "") == "--logdir '': must not be empty"
    assert refusal(*LINEAR, "--summary-every", "5") == "--summary-every 5: needs --logdir"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    says = f"--logdir {tmp_path}: needs TensorBoard: pip install 'grpc-ps[tensorboard]'"
    assert refusal(*LINEAR, "--logdir", str(tmp_path)) == says


def test_help_needs_no_tensorflow() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "--model-arg NAME=VALUE" in done.stdout
    assert done.stdout.splitlines()[-1] == "imported grpc"
    assert done.stderr == ""


def test_usage_errors_are_one_line_and_need_no_tensorflow() -> None:
    done = run(*("--ps", "a:1", "--model", "mnits"))
    assert done.returncode == 2
    assert done.stderr.startswith("worker: error: --model: unknown model 'mnits', did you mean 'mnist'?")
    assert done.stderr.count("\n") == 1
    assert done.stdout == "imported grpc\n"


def test_bad_data_is_found_before_anyone_is_contacted(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte.gz").write_text("<!DOCTYPE html>")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        done = run("--ps", address, "--model", "mnist", "--data-dir", str(tmp_path))
        with pytest.raises(BlockingIOError):
            server.accept()
    assert done.returncode == 3
    says = f"worker: error: {tmp_path / 'train-images-idx3-ubyte.gz'}: holds an HTML page"
    assert done.stderr.startswith(says)
    assert done.stderr.count("\n") == 1


def test_flags_alone_are_checked_without_reading_anything() -> None:
    done = run("--validate", "--model", "mnist", "--data-dir", "/there/is/none", "--steps", "5")
    assert (done.returncode, done.stderr) == (0, "")
    assert "tensorflow" not in done.stdout
    wrong = run("--validate", "--model", "mnits")
    assert wrong.returncode == 2
    assert "unknown model 'mnits', did you mean 'mnist'?" in wrong.stderr


@pytest.mark.parametrize("run_id", ["", "0", "g", "-1", "1" * 17])
def test_a_run_is_one_to_sixteen_hexadecimal_digits(run_id: str) -> None:
    assert config_of(*LINEAR, "--run", "00ff").run == 255
    says = f"--run {run_id}: must be a run id: 1 to 16 hexadecimal digits"
    assert refusal(*LINEAR, "--run", run_id) == says


def test_a_device_that_is_not_there() -> None:
    done = run(*LINEAR, "--device", "gpu:7")
    assert done.returncode == 2
    assert done.stderr == "worker: error: --device gpu:7: not here; there are: cpu:0\n"


DEVICE = """
import gc, sys
import numpy as np
from grpc_ps.worker.device import placed, start_tensorflow
start_tensorflow(threads=1, device="CPU:1")
assert gc.isenabled()
import tensorflow as tf
from grpc_ps.models.datasets import digits
from grpc_ps.models.mnist import Mnist
from grpc_ps.worker.data import NumberedFeed, source
from grpc_ps.worker.evaluator import Evaluator
from grpc_ps.worker.step import Step
from grpc_ps.worker.tensors import aligned_array
from grpc_ps.worker.variables import Variables, parameter_specs

assert tf.config.threading.get_intra_op_parallelism_threads() == 1
assert tf.config.threading.get_inter_op_parallelism_threads() == 1
assert not tf.config.get_soft_device_placement()
data = digits.load()
class Watched(Mnist):
    def losses(self, features, labels):
        losses = super().losses(features, labels)
        self.graph = losses.graph
        return losses

for device in ("CPU:0", "CPU:1"):
    with placed(device):
        model = Watched(hidden=5)
    model.initialize(0)
    arrays = {s.name: aligned_array(s.shape, np.dtype(s.dtype)) for s in parameter_specs(model.variables)}
    for variable, array in zip(model.variables, arrays.values()):
        array[...] = variable.numpy()
    variables = Variables(model.variables, arrays)
    arrays["sm_b"][3] = 2
    shares = model.variables[-1].numpy()[3] == 2
    variables.refresh()
    step = Step(model, device=device)
    loss, gradients = step(NumberedFeed(source(data.train, batch_size=10, seed=0)).take(0))
    kernels = {op.device[-5:] for op in model.graph.get_operations() if op.type in ("MatMul", "Relu")}
    print(kernels, {v.device[-5:] for v in model.variables}, shares)
    accuracy = Evaluator(model, data.test, device=device)(arrays)["accuracy"]
    print(float(loss), accuracy, {name: float(np.abs(gradient).sum()) for name, gradient in gradients.items()})
print(*(name for name in sys.modules if name.partition(".")[0] == "keras"))
print(tf.keras.optimizers.SGD.__module__)
"""


def test_a_stated_device_is_kept_to() -> None:
    done = subprocess.run([sys.executable, "-c", DEVICE], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    first, values, second, same_values, imported, used = done.stdout.splitlines()
    # Only the first CPU's memory is the one that numpy can share.
    assert (first, second) == ("{'CPU:0'} {'CPU:0'} True", "{'CPU:1'} {'CPU:1'} False")
    assert values == same_values
    assert (imported, used) == ("", "keras.src.optimizers.sgd")
