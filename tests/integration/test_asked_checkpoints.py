"""Checkpoints that somebody asks for (`psctl checkpoint`)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_cluster import LocalCluster
from recovery_bed import RecoveryBed
from saved_jobs import LR, by_number, training, whole_steps

from grpc_ps.client import PSClient
from grpc_ps.client.shared.errors import CheckpointError, NotOpen, PeerLost


def test_a_checkpoint_that_is_asked_for(tmp_path: Path) -> None:
    """The present step, once however often it is asked; while a periodic one is on its way, that or the next one."""
    go = [threading.Event() for _ in range(2)]

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        if batch in (3, 20):
            assert go[batch == 20].wait(30)
        return by_number(worker, batch, parameters)

    with RecoveryBed(tmp_path, presets={"learning_rate": LR, "steps": 30}, checkpoints={"steps": 20, "keep": 9}) as bed:
        with PSClient(bed.addresses) as client, training(bed, 1, gradient):
            bed.history.until_step(3)
            first, second = client.checkpoint(), client.checkpoint()
            assert first == second
            assert (first.global_step, Path(first.path).name) == (3, "step-00000003")
            assert whole_steps(tmp_path) == [0, 3]
            assert client.status().checkpoint.global_step == 3
            go[0].set()
            bed.history.until_step(20)
            asked = client.checkpoint()
            assert asked.global_step == 20
            go[1].set()
        assert bed.wait_ended() == [None, None]
        assert len(bed.log.of("checkpoint ", "global_step=20 ")) == 1
    assert whole_steps(tmp_path) == [0, 3, 20, 30]


def test_a_checkpoint_that_cannot_be_had(tmp_path: Path) -> None:
    """Before the job has values, and of shards without a folder."""
    with RecoveryBed(tmp_path) as bed, PSClient(bed.addresses) as client, pytest.raises(NotOpen):
        client.checkpoint()
    with (
        LocalCluster(1, presets={"steps": 5}) as cluster,
        PSClient(cluster.addresses) as client,
        pytest.raises(CheckpointError, match="--checkpoint-dir"),
    ):
        client.checkpoint()


def test_a_checkpoint_that_is_asked_for_while_a_shard_is_killed(tmp_path: Path) -> None:
    """Whoever asked is told that it was not written, or gets one that is whole; the job goes on."""
    answers: list[Any] = []
    struck = threading.Event()

    def strike(shard: int, point: str) -> None:
        if (shard, point) == (1, "part.sync") and bed.history.step >= 12 and not struck.is_set():
            bed.kill(1)
            struck.set()

    with RecoveryBed(tmp_path, presets={"learning_rate": LR, "steps": 24}, at=strike) as bed:

        def ask() -> None:
            with PSClient(bed.addresses) as client:
                try:
                    answers.append(client.checkpoint(5.0))
                except Exception as error:
                    answers.append(error)

        asker = threading.Thread(target=ask)
        bed.at_step(12, asker.start)

        def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
            if batch >= 14:
                assert struck.wait(30)
            return by_number(worker, batch, parameters)

        with training(bed, 2, gradient):
            bed.until_dead(1)
            bed.start(1)
        asker.join(30)
        assert bed.wait_ended() == [None, None]
        bed.history.check()
    (answer,) = answers
    assert isinstance(answer, PeerLost), answer
