"""What a program gets wrong is told at once, in one line, by the names of its own keywords."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from grpc_ps.client import LocalCluster, ParameterSpec, PSClient
from grpc_ps.client.shared.errors import JobFailed, PsError, UsageError
from grpc_ps.client.shared.job_settings import checked_settings
from grpc_ps.models.linear import Linear
from grpc_ps.worker import MonitoredSession, StopAtStepHook
from grpc_ps.worker.cluster import parse_cluster

W = tf.Variable([0.0], name="w")
X = np.ones(4, np.float32)


def losses(x: Any, y: Any) -> Any:
    return tf.square(W * x - y)


class Net:
    def __init__(self, hidden: int) -> None:
        self.hidden = hidden


def classifier() -> keras.Model:
    return keras.Sequential([keras.Input((784,)), keras.layers.Dense(10)])


def said(call: Any) -> str:
    with pytest.raises(PsError) as caught:
        call()
    assert isinstance(caught.value, UsageError)
    assert "\n" not in str(caught.value)
    assert "--" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("model", "given", "says"),
    [
        (
            losses,
            {"variables": None},
            "variables: must be given with a loss function as losses(x, y): variables=[w, b]",
        ),
        (losses, {"variables": [3]}, "variables: 1 is of type int; expected a tf.Variable"),
        (
            losses,
            {"variables": W},
            "variables: must be a list of tf.Variable, or names with them; it is of type Resource",
        ),
        (losses, {"variables": {}}, "variables: there is none in it"),
        (losses, {"variable": [W]}, "variable: is no setting of a job (did you mean variables?)"),
        (Net, {"variables": None}, "model: Net needs hidden; give what makes the model by itself: lambda: Net(...)"),
        (3, {}, "model: is of type int; expected a model, what makes one, or a loss function"),
        ("mnits", {"variables": None}, "model: unknown model 'mnits', did you mean 'mnist'?"),
        ("linear", {}, "variables: only with a loss function; a model has its own"),
        (Linear(), {}, "variables: only with a loss function; a model has its own"),
        (Linear, {"variables": None, "data": "digits"}, "data digits: this model has its own data ('line')"),
        (Linear, {"variables": None, "data": True, "until": "x>=1"}, "until: there is no test set to find x on"),
        (losses, {"test": X}, "test: must be arrays (features, labels) of one length: "),
        (
            losses,
            {"test": (X, X[1:])},
            "test: must be arrays (features, labels) of one length: 4 features and 3 labels",
        ),
        (losses, {"hooks": [3]}, "hooks: item 1 of 1 is 3, of type int; must be a Hook, as StopAtStepHook(1000)"),
        (losses, {"hooks": [StopAtStepHook]}, "hooks: item 1 of 1 is the class StopAtStepHook; must be a Hook"),
        (losses, {"hooks": StopAtStepHook(3)}, "hooks: must be a list of hooks, as [StopAtStepHook(1000)]; it is <"),
        (losses, {"index": -1}, "index -1: must be a whole number from 0, or None for any that is free"),
        (losses, {"timeout": 0}, "timeout 0: must be a finite number of seconds above 0"),
        (losses, {"security": "ca.pem"}, "security: must be a Security, or None; it is 'ca.pem', of type str"),
        (losses, {"mode": "synch"}, "mode synch: must be one of async, sync (did you mean sync?)"),
        (losses, {"optimizer": "sgdd"}, "optimizer sgdd: must be one of sgd, momentum, adagrad, adam, adamw, rmsprop,"),
        (losses, {"hooks": [StopAtStepHook(9)], "steps": 1.5}, "steps: a hook states 9, and 1.5 is stated too"),
    ],
)
def test_what_a_session_cannot_be_given(model: Any, given: dict[str, Any], says: str) -> None:
    arguments = {"variables": [W], **given}
    assert said(lambda: MonitoredSession("127.0.0.1:1", model, **arguments)).startswith(says)


def test_a_keras_model_without_data_is_not_given_any() -> None:
    says = "data: the model has none of its own; give arrays (features, labels), or what returns them"
    assert said(lambda: MonitoredSession("127.0.0.1:1", classifier(), data=True)) == says


@pytest.mark.parametrize(
    ("cluster", "says"),
    [
        (None, 'cluster: must be "HOST:PORT,...", a list of those, {"ps": [...]}, a LocalCluster, or os.environ["TF_'),
        (3, 'cluster: must be "HOST:PORT,...", a list of those, '),
        (["a:1", 3], 'cluster: item 2 of 2 is 3; it must be a text, "HOST:PORT"'),
        ([], "cluster '': the list of shards is empty; give HOST:PORT,HOST:PORT,..."),
        ({"worker": []}, 'cluster.ps: must be there, a list of "HOST:PORT", one for each shard; it has: worker'),
        ({}, 'cluster.ps: must be there, a list of "HOST:PORT", one for each shard; it has: nothing'),
        ({"ps": "a:1"}, 'cluster.ps: must be a list of "HOST:PORT"'),
        ({"ps": ["a"]}, "cluster.ps: item 1 of 1 'a' has no port; give HOST:PORT"),
        ({"ps": {"a:1"}}, "cluster: Object of type set is not JSON serializable"),
        ({"cluster": {"ps": ["a:1"]}, "task": {"type": "wroker"}}, "cluster: task.type wroker: must be ps, worker, "),
        (LocalCluster(), "the LocalCluster has not been started: use it as a context manager, or call start()"),
    ],
)
def test_where_no_cluster_is(cluster: Any, says: str) -> None:
    assert said(lambda: parse_cluster(cluster)).startswith(says)


def test_tensorflows_own_specification_is_a_cluster() -> None:
    assert parse_cluster(tf.train.ClusterSpec({"ps": ["a:1", "b:2"], "worker": ["c:3"]})) == (("a:1", "b:2"), None)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"ps": 0}, "ps 0: how many shards; must be a whole number, 1 to 1024"),
        ({"ps": "2"}, "ps '2': how many shards; must be a whole number, 1 to 1024"),
        ({"shards": 2}, "shards: the cluster says that by itself; ps=N says how many shards it has"),
        ({"log_dir": "/no/such"}, "log_dir /no/such: there is no such folder"),
        ({"mode": "asink"}, "mode asink: must be one of async, sync (did you mean async?)"),
        ({"workers": 0}, "workers 0: must be at least 1"),
    ],
)
def test_what_a_local_cluster_cannot_be_given(given: dict[str, Any], says: str) -> None:
    assert said(lambda: LocalCluster(**given)) == says


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"steps": 1.5}, "steps 1.5: must be a whole number, at least 1"),
        ({"steps": True}, "steps True: must be a word or a number, not of type bool"),
        ({"nesterov": 1}, "nesterov 1: must be True or False"),
        ({"lr": 0.1}, "lr: is no setting of a job (did you mean learning_rate?)"),
        ({"learning_rate": float("nan")}, "learning_rate nan: must be a finite number above 0"),
        ({"mode": "sync", "max_staleness": 3}, "max_staleness 3: only with mode async; in sync no gradient is stale"),
        ({"clip_norm": 1, "clip_value": 2}, "clip_value and clip_norm: at most one kind of clipping can be set"),
        ({"optimizer": "sgd", "beta_1": 0.9}, "beta_1: sgd has none; only with optimizer adam or adamw"),
        ({"wire_dtype": "f16"}, "wire_dtype f16: must be one of float32, bfloat16, float16 (did you mean float16?)"),
    ],
)
def test_settings_are_checked_as_flags_are(settings: dict[str, Any], says: str) -> None:
    assert said(lambda: checked_settings(settings)) == says


def test_settings_have_the_values_that_flags_have() -> None:
    given = {"steps": np.int64(3), "learning_rate": np.float32(0.1), "until": "accuracy=0.9", "nesterov": False}
    more = {"wire_dtype": "bfloat16", "max_staleness": -1, "seed": None}
    assert checked_settings({**given, **more}) == {
        "steps": 3,
        "learning_rate": 0.1,
        "until": "accuracy>=0.9",
        "nesterov": False,
        "push_dtype": "bfloat16",
        "pull_dtype": "bfloat16",
        "max_staleness": -1,
    }


def test_a_client_that_is_closed_says_so() -> None:
    with PSClient("127.0.0.1:1") as client:
        pass
    says = "the client of 127.0.0.1:1 is closed; make another PSClient"
    calls = (client.pull, client.status, client.stop, client.checkpoint, client.jobs.list, lambda: client.join("m", []))
    for call in (*calls, lambda: client.set(workers=1), lambda: next(client.watch())):
        assert said(call) == says
    assert said(lambda: PSClient(None)).startswith(
        'addresses: must be "HOST:PORT,..." or a list of "HOST:PORT"; it is None'
    )  # type: ignore[arg-type]


def test_who_knows_that_nobody_will_come_does_not_wait() -> None:
    """The timeout is longer than a test may take."""

    def over() -> None:
        raise JobFailed("the job is over")

    with PSClient("127.0.0.1:1", timeout=1000.0) as client, pytest.raises(JobFailed, match="the job is over"):
        client.join("m", [ParameterSpec(name="w", shape=(1,), dtype="float32")], still=over)


def test_a_session_that_was_not_entered_computes_nothing() -> None:
    session = MonitoredSession("127.0.0.1:1", losses, variables=[W])
    with pytest.raises(RuntimeError, match="the session has not joined: use it as a context manager"):
        session.run_step(X, X)
