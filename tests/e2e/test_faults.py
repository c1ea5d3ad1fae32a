"""Fault cases with worker processes as a user starts them, on shards in this process that tell what they did."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest
from commands import ENDED, UNHURRIED, Command, run
from history import History
from light_worker import constant, run_worker, scalar
from local_cluster import LocalCluster
from ports import free_port

from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.log import Answer, Entry, Open
from grpc_ps.psserver.updates import load_store

pytestmark = pytest.mark.e2e

LINE = """
import os, time
import numpy as np
import tensorflow as tf
from grpc_ps.models import DataBundle, ModelDefaults
from grpc_ps.models.linear import Linear
"""

SLOW_TO_INITIALIZE = """
class Model(Linear):
    def initialize(self, seed):
        deadline = time.monotonic() + 60
        while not os.path.exists({path!r}) and time.monotonic() < deadline:
            time.sleep(0.02)
        super().initialize(seed)
"""

NEVER_FINITE = """
class Model(Linear):
    def losses(self, features, labels):
        return super().losses(features, labels) * np.float32("nan")
"""

NUMBERED = """
class Numbers:
    examples = 100
    fingerprint = "numbers"

    def take(self, indices):
        return np.asarray(indices, np.int32), np.asarray(indices, np.int32)

class Model:
    name = "numbered"
    shown = ()
    defaults = ModelDefaults(optimizer="sgd", learning_rate=1.0, batch_size=7, steps=10**6)

    def __init__(self):
        self.seen = tf.Variable(tf.zeros([100]), name="seen")
        self.variables = (self.seen,)

    def data(self, directory):
        return DataBundle(train=Numbers(), test=None, description="a hundred numbers")

    def initialize(self, seed):
        pass

    def losses(self, features, labels):
        return tf.gather(self.seen, features)

    def metrics(self, features, labels):
        return {"loss": self.losses(features, labels)}
"""


@pytest.fixture(scope="module", autouse=True)
def _tensorflow() -> None:
    """Imports TensorFlow before any cluster starts: that takes seconds, in which short leases would end."""
    load_store(1)


def written(folder: Path, model: str) -> str:
    """Writes a user's model; returns what `--model` takes."""
    path = folder / "user_model.py"
    path.write_text(LINE + model)
    return f"{path}:Model"


def test_b05_a_slow_opener_does_not_make_the_others_give_up(tmp_path: Path) -> None:
    """Fault B05: connect timeout 4 s, and an opener that takes longer: the other one waits and says for whom."""
    go_on = tmp_path / "go-on"
    model = written(tmp_path, SLOW_TO_INITIALIZE.format(path=str(go_on)))
    # In rounds of both: it cannot be over before the other one is in.
    with LocalCluster(1, presets={"steps": 20, "mode": "sync", "workers": 2}) as cluster:
        flags = ("--ps", cluster.addresses, "--model", model, "--connect-timeout", 4, "--json")
        with Command("worker", *flags) as opener:
            opener.until("opener=True")
            with Command("worker", *flags) as other:
                # It says so every five seconds: longer than the connect timeout.
                other.until(r"waiting.*worker 0 \(\S+\) to send the initial values")
                go_on.touch()
                assert [opener.wait(), other.wait()] == [0, 0], opener.text + other.text
        assert cluster.wait_ended() == [None]
    assert len(cluster.history.of(Open)) == 1
    assert cluster.history.step == 20


@pytest.mark.parametrize("number", [signal.SIGINT])
def test_b02_a_wait_for_shards_ends_at_once_by_a_signal(number: signal.Signals) -> None:
    """Fault B02: Ctrl-C while nobody answers."""
    with Command("worker", "--ps", f"127.0.0.1:{free_port()}", "--model", "linear") as worker:
        worker.until("waiting")
        worker.process.send_signal(number)
        assert worker.wait(ENDED) == 128 + number, worker.text
        assert "Traceback" not in worker.text


def test_b11_b36_newcomers_that_do_not_fit_are_refused() -> None:
    """Faults B11 and B36: a held index is exit 4, another mode exit 2; the job does not notice."""
    with LocalCluster(1) as cluster:
        flags = ("--ps", cluster.addresses, "--model", "linear", "--steps", 10**9)
        with Command("worker", *flags, "--mode", "async", "--index", 1, "--fault", UNHURRIED) as holder:
            holder.until("local_step")
            held = run("worker", *flags, "--index", 1)
            assert held.returncode == 4
            assert held.stderr.splitlines()[-1].startswith("worker: error: index 1 is held by ")
            mixed = run("worker", *flags, "--mode", "sync")
            assert mixed.returncode == 2
            assert "mode: the job has 'async', this worker has 'sync'" in mixed.stderr.splitlines()[-1]
            before = cluster.history.step
            cluster.history.until_step(before + 5)
    cluster.history.check()


def test_b91_a_worker_whose_numbers_are_never_finite_exits_5(tmp_path: Path) -> None:
    """Fault B91: five refusals in a row, nothing applied, the parameter named."""
    with LocalCluster(1) as cluster:
        flags = ("--ps", cluster.addresses, "--model", written(tmp_path, NEVER_FINITE), "--steps", 50)
        ended = run("worker", *flags)
        assert ended.returncode == 5, ended.stderr
        line = ended.stderr.splitlines()[-1]
        assert line.startswith("worker: error: 5 pushes in a row had NaN or infinity in parameter '")
        refused = [it.result for it in cluster.history.of(Answer) if it.result and it.result.outcome == "NON_FINITE"]
    assert len(refused) == 5
    assert cluster.history.step == 0


def test_every_example_is_used_once_an_epoch_though_a_worker_process_is_killed(tmp_path: Path) -> None:
    """Three workers, 100 numbered examples, 2 epochs of 15 batches, sync; kill -9 of one, another in its place."""
    presets = {"mode": "sync", "workers": 3, "epochs": 2, "batch_size": 7}
    with LocalCluster(1, presets=presets, limits=Limits(lease=5.0)) as cluster:
        history = cluster.history
        history.keep_images = True
        flags = ("--ps", cluster.addresses, "--model", written(tmp_path, NUMBERED))
        with (
            Command("worker", *flags, "--index", 0) as first,
            Command("worker", *flags, "--index", 1) as victim,
            Command("worker", *flags, "--index", 2) as third,
        ):

            def kill(shard: int, entry: Entry) -> None:
                if isinstance(entry, Answer) and entry.worker == 1 and entry.release and entry.step == 4:
                    victim.process.kill()  # does nothing once it has been waited for

            history.hooks.append(kill)
            assert victim.wait() == -signal.SIGKILL
            with Command("worker", *flags, "--index", 1) as heir:
                assert [first.wait(), third.wait(), heir.wait()] == [0, 0, 0], first.text + heir.text
        assert cluster.wait_ended() == [None]
    history.check_rounds(lambda update: 3)
    assert [sorted(seen(history, epoch)) for epoch in (0, 1)] == [list(range(100))] * 2


def seen(history: History, epoch: int) -> list[int]:
    """The examples of an epoch, in order of use: those of which the applied gradients are made."""
    found: list[int] = []
    for update in history.updates[0]:
        for used, image in zip(update.pushes, update.images, strict=True):
            if used.batch // 15 == epoch:
                found += np.flatnonzero(np.frombuffer(image, np.float32, 100)).tolist()
    return found


def test_b48_a_stopped_worker_of_an_old_run_is_refused_by_the_next() -> None:
    """Fault B48: SIGSTOP, the job ends, another one begins on the same port, SIGCONT: exit 4, and no effect."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    presets = {"learning_rate": 2.0**-10}
    with Command("worker", "--ps", address, "--model", "linear", "--steps", 10**9) as ghost:
        with LocalCluster(1, port=port):
            ghost.until("local_step")
            ghost.process.send_signal(signal.SIGSTOP)
        with LocalCluster(1, presets=presets, port=port) as cluster:
            ghost.process.send_signal(signal.SIGCONT)
            done = run_worker(cluster.addresses, [scalar()], constant(1.0), pushes=30)
            assert ghost.wait() == 4, ghost.text
            assert "Traceback" not in ghost.text
            assert ghost.lines[-1].startswith("worker: error: ")
    assert float(done.parameters["w"]) == -30 / 1024
    assert cluster.history.step == 30


def test_b26_psserver_and_both_clients_answer_help_without_tensorflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault B26: usage needs the declared dependencies and no TensorFlow, which would end the command with code 99."""
    (tmp_path / "tensorflow.py").write_text("import os\nos._exit(99)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for command in ("psserver", "worker", "psctl"):
        ended = run(command, "--help")
        assert (ended.returncode, ended.stdout.startswith(f"Usage: {command} ")) == (0, True), ended.stderr
