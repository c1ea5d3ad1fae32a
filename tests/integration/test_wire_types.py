"""Gradients and parameters that travel in fewer bytes: the same for any number of shards, and nothing is lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from history import History
from light_worker import Outcome, run_worker, run_workers
from local_cluster import LocalCluster

from grpc_ps.client import PSClient
from grpc_ps.client import feedback as feedback_module
from grpc_ps.client.shared.blocks import ParameterSpec, place
from grpc_ps.client.shared.errors import InvalidPush, Mismatch
from grpc_ps.client.shared.image import block_views, gradients_layout

# More than one block, several chunks, and parameters that travel as they are.
SPECS = [
    ParameterSpec(name="a", shape=(270, 500), dtype="float32"),
    ParameterSpec(name="b", shape=(33, 7), dtype="float64"),
    ParameterSpec(name="c", shape=(), dtype="float32"),
    ParameterSpec(name="d", shape=(5,), dtype="float32", trainable=False),
]
FORMS: dict[str, dict[str, Any]] = {
    "bfloat16": {"push_dtype": "bfloat16", "pull_dtype": "bfloat16"},
    "float16": {"push_dtype": "float16", "pull_dtype": "float16"},
    "topk": {"compress": "topk:0.01"},
    "topk-bfloat16": {"compress": "topk:0.3", "push_dtype": "bfloat16"},
    "pulls": {"pull_dtype": "bfloat16"},
}
STEPS = 5
Arrays = dict[str, np.ndarray]


def by_batch(batch: int) -> Arrays:
    """Numbers of so few bits that sums of some of them are exact, and of too many for 16 bits."""
    rng = np.random.default_rng(batch)
    return {s.name: (rng.integers(-(2**15), 2**15, s.shape) / 2**10).astype(s.dtype) for s in SPECS}


def initial() -> Arrays:
    rng = np.random.default_rng(3)
    return {spec.name: rng.normal(size=spec.shape).astype(spec.dtype) for spec in SPECS}


class Worker:
    """Pushes what depends on the batch and on the parameters; keeps what came, went, and was kept back."""

    def __init__(self) -> None:
        self.sums: Arrays = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in SPECS}
        self.released: list[Arrays] = []
        self.kept: Arrays = {}

    def run(self, addresses: str, index: int, **join: Any) -> Outcome:
        with PSClient(addresses, timeout=20) as client:
            session = client.join("test", SPECS, index=index, **join)
            if session.opener:
                session.open(initial())
            outcome = Outcome()
            reply = session.begin()
            while not reply.done:
                assert reply.batch is not None
                self.released.append({name: array.copy() for name, array in session.parameters.items()})
                gradients = by_batch(reply.batch)
                reply = client.push(gradients)
                outcome.order.append(str(reply.outcome))
                for name, array in gradients.items():
                    self.sums[name] += array
            if session._exchange._keeping.feedback is not None:
                self.kept = {name: array.copy() for name, array in session._exchange._keeping.feedback.old.items()}
            outcome.parameters = {name: array.copy() for name, array in client.pull().values.items()}
            return outcome


def applied(history: History, shards: int) -> Arrays:
    """The sum of all gradients that the shards have applied, as they understood them."""
    sums: Arrays = {spec.name: np.zeros(spec.size, spec.dtype) for spec in SPECS}
    for blocks, updates in zip(place(SPECS, shards).shards, history.updates, strict=True):
        layout = gradients_layout(blocks)
        for update in updates:
            for image in update.images:
                views = block_views(layout, np.frombuffer(bytearray(image), np.uint8))
                for block, view in zip(layout.blocks, views, strict=True):
                    sums[block.parameter][block.start : block.stop] += view
    return sums


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shards", [1, 3])
def test_what_was_applied_and_what_is_kept_are_all_gradients(form: str, shards: int) -> None:
    presets = {**FORMS[form], "steps": STEPS, "optimizer": "sgd", "learning_rate": 2.0**-10}
    with LocalCluster(shards, presets=presets, chunk_bytes=1 << 16) as cluster:
        cluster.history.keep_images = True
        worker = Worker()
        assert worker.run(cluster.addresses, 0).order == ["APPLIED"] * STEPS
        assert cluster.wait_ended() == [None] * shards
    sums = applied(cluster.history, shards)
    for name, array in worker.sums.items():
        kept = worker.kept.get(name, np.zeros(array.size, array.dtype))
        assert np.array_equal(sums[name] + kept, array.ravel()), name
    reduced = form != "pulls"
    assert worker.kept.keys() == ({"a", "c"} if reduced else set())
    assert np.any(worker.kept["a"]) if reduced else True


@pytest.mark.parametrize("form", FORMS)
def test_two_workers_in_rounds_are_the_same_to_the_bit_on_any_number_of_shards(form: str) -> None:
    ends = []
    for shards, chunk_bytes in ((1, 1 << 20), (2, 1 << 16), (3, 1 << 20), (1, 1 << 16)):
        presets = {
            **FORMS[form],
            "mode": "sync",
            "workers": 2,
            "steps": STEPS,
            "optimizer": "adam",
            "learning_rate": 0.05,
            "global_clip_norm": 30.0,
        }
        with LocalCluster(shards, presets=presets, chunk_bytes=chunk_bytes) as cluster:
            done = run_workers(2, lambda number, at=cluster.addresses: Worker().run(at, number))
            assert cluster.wait_ended() == [None] * shards
        cluster.history.check_rounds(lambda update: 2)
        ends.append({name: array.tobytes() for name, array in done[0].parameters.items()})
    assert ends[0] == ends[1] == ends[2] == ends[3]


def test_released_parameters_are_those_of_the_shards_rounded_and_readers_get_them_exactly() -> None:
    presets = {"pull_dtype": "bfloat16", "push_dtype": "float32", "steps": 1, "optimizer": "sgd"}
    with LocalCluster(2, presets=presets) as cluster, PSClient(cluster.addresses, timeout=20) as client:
        session = client.join("test", SPECS)
        session.open(initial())
        session.begin()
        first = initial()
        for name, array in session.parameters.items():
            if name in ("a", "c"):
                rounded = first[name].astype(ml_dtypes.bfloat16).astype(np.float32)
                assert np.array_equal(array, rounded)
                assert not np.array_equal(array, first[name])
            else:
                assert np.array_equal(array, first[name])
        exact = client.pull().values
        assert all(np.array_equal(exact[name], first[name]) for name in first)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("form", ["bfloat16", "float16", "topk"])
def test_a_refused_push_gives_back_what_it_took(form: str, bad: float) -> None:
    with LocalCluster(2, presets={**FORMS[form], "steps": 2, "optimizer": "sgd"}) as cluster:
        cluster.history.keep_images = True
        with PSClient(cluster.addresses, timeout=20) as client:
            session = client.join("test", SPECS)
            session.open(initial())
            session.begin()
            total = by_batch(1)
            client.push(total)
            spoilt = by_batch(2)
            spoilt["a"][-1, -1] = bad
            refused = client.push(spoilt)
            assert (refused.outcome, refused.parameter) == ("NON_FINITE", "a")
            last = by_batch(3)
            client.push(last)
            assert session._exchange._keeping.feedback is not None
            kept = session._exchange._keeping.feedback.old
            cluster.history.wait_equal()
            sums = applied(cluster.history, 2)
            for name in ("a", "c"):
                assert np.array_equal(sums[name] + kept[name], (total[name] + last[name]).ravel())


def constant(value: float) -> Any:
    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[Arrays, int]:
        return {name: np.full_like(array, value) for name, array in parameters.items()}, 1

    return gradient


def test_whoever_states_another_form_is_refused_with_both() -> None:
    with LocalCluster(presets={"steps": 1, "push_dtype": "bfloat16"}) as cluster:
        with pytest.raises(Mismatch, match=r"push_dtype: .* has 'bfloat16', this worker has 'float16'"):
            run_worker(cluster.addresses, SPECS, constant(1), stated={"push_dtype": "float16"})
        done = run_worker(cluster.addresses, SPECS, constant(1), stated={"push_dtype": "bfloat16"})
        assert done.order == ["APPLIED"]


@pytest.mark.parametrize("form", ["bfloat16", "topk"])
def test_a_late_push_gives_back_what_it_took(form: str) -> None:
    """Two hold numbers of one round of one; the second to come is late, and its next push has all that it kept."""
    presets = {**FORMS[form], "mode": "sync", "workers": 1, "backup": 1, "steps": 100, "optimizer": "sgd"}
    with (
        LocalCluster(2, presets=presets) as cluster,
        PSClient(cluster.addresses, timeout=20) as one,
        PSClient(cluster.addresses, timeout=20) as other,
    ):
        cluster.history.keep_images = True
        fast = one.join("test", SPECS)
        fast.open(initial())
        slow = other.join("test", SPECS)
        fast.begin()
        slow.begin()
        late = by_batch(2)
        one.push(by_batch(1))
        assert other.push(late).outcome == "LATE"
        feedback = slow._exchange._keeping.feedback
        assert feedback is not None
        assert not any(np.any(array) for array in feedback.old.values())
        last = by_batch(3)
        assert other.push(last).outcome == "APPLIED"
        cluster.history.wait_equal()
        sums = applied(cluster.history, 2)
        ones = fast._exchange._keeping.feedback
        assert ones is not None
        for name in ("a", "c"):
            kept = feedback.old[name] + ones.old[name]
            assert np.array_equal(sums[name] + kept, (by_batch(1)[name] + last[name]).ravel())


@pytest.mark.parametrize("shards", [1, 2])
def test_indices_that_do_not_rise_are_refused_and_change_nothing(shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    presets = {"compress": "topk:0.4", "steps": 2, "optimizer": "sgd"}
    with LocalCluster(shards, presets=presets) as cluster:
        with PSClient(cluster.addresses, timeout=20) as client:
            session = client.join("test", SPECS)
            session.open(initial())
            session.begin()
            monkeypatch.setattr(feedback_module, "largest", lambda values, count, scratch: np.arange(count)[::-1])
            with pytest.raises(
                InvalidPush, match=r"the indices in block \d+ to \d+ of [ac] do not rise, or are not below"
            ):
                client.push(by_batch(0))
        monkeypatch.undo()
        with PSClient(cluster.addresses, timeout=20) as client:
            values = client.pull()
            assert values.global_step == 0
            assert all(np.array_equal(values.values[name], array) for name, array in initial().items())
        assert Worker().run(cluster.addresses, 0).order == ["APPLIED", "APPLIED"]
