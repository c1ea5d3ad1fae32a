"""The evaluator of a TF_CONFIG: it evaluates beside training, and is no member of the job."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest
from event_files import check_whole, values
from light_worker import DEADLINE
from local_cluster import LocalCluster
from ports import held_port
from real_worker import train_in

from grpc_ps.client import PSClient
from grpc_ps.client.shared.errors import PeerUnreachable, UsageError
from grpc_ps.models.linear import Linear
from grpc_ps.models.mnist import Mnist
from grpc_ps.worker.beside import evaluate_beside
from grpc_ps.worker.config import WorkerConfig


def config(addresses: str, model: str = "mnist", **more: Any) -> WorkerConfig:
    return WorkerConfig(addresses=tuple(addresses.split(",")), model=model, arguments={}, stated={}, **more)


def test_it_follows_a_job_to_its_end(tmp_path: Path) -> None:
    lines: list[str] = []
    members: list[int] = []
    with LocalCluster(2, presets={"steps": 10**6}) as cluster:

        def told(line: str) -> None:
            lines.append(line)
            if len(lines) == 1:
                with PSClient(cluster.addresses) as client:
                    members.append(len(client.status().workers))
                    client.stop()

        thread = threading.Thread(target=train_in, args=(cluster, [Mnist]), daemon=True)
        thread.start()
        last = evaluate_beside(config(cluster.addresses, logdir=tmp_path), Mnist, told, interval=0.05)
        thread.join(DEADLINE)
        assert cluster.wait_ended() == [None] * 2
    found = re.fullmatch(r"evaluator: evaluation at global_step (\d+): accuracy .+ \(\d+ examples\)", lines[0])
    assert found is not None
    assert last is not None
    assert last >= int(found[1]) >= 1
    assert members == [1]
    # Each is in TensorBoard's folder too, at its step.
    assert [*values(tmp_path / "evaluator", "accuracy")] == [
        int(line.partition("global_step ")[2].partition(":")[0]) for line in lines
    ]
    check_whole(tmp_path)


def test_data_without_a_test_set_has_nothing_to_evaluate() -> None:
    with pytest.raises(UsageError, match=r"TF_CONFIG: task.type evaluator: the data of --model linear has no test set"):
        evaluate_beside(config("a:1", "linear"), Linear, print)


def test_shards_that_never_come_end_it() -> None:
    with held_port() as port, pytest.raises(PeerUnreachable, match=str(port)):
        evaluate_beside(config(f"127.0.0.1:{port}", connect_timeout=0.1), Mnist, print, interval=0.05)
