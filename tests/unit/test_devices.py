"""A shard never touches a GPU, and workers share one."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
import tensorflow as tf

from grpc_ps.psserver import command
from grpc_ps.psserver.config import ShardConfig
from grpc_ps.psserver.store import configure_tensorflow
from grpc_ps.worker.device import start_tensorflow


class Seen(Exception):
    """Ends a shard that has only begun to start."""


@pytest.mark.parametrize("environment", [None, "", "-1", "0", "0,1"])
def test_b70_a_shard_hides_gpus_whatever_the_environment_says(
    environment: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault B70: before TensorFlow is imported, for its driver starts on what it sees then."""
    if environment is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", environment)

    class Shard:
        def __init__(self, config: ShardConfig) -> None:
            raise Seen(os.environ["CUDA_VISIBLE_DEVICES"])

    monkeypatch.setattr(command, "ShardServer", Shard)
    with pytest.raises(Seen, match=r"^-1$"):
        asyncio.run(command.serve(ShardConfig(shard=0)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", environment or "")


def test_b70_a_shards_tensorflow_sees_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden: list[Any] = []
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda devices, kind: hidden.append((devices, kind)))
    configure_tensorflow(1)
    assert hidden == [([], "GPU")]
    assert tf.config.get_visible_devices("GPU") == []


def test_b70_a_shard_whose_tensorflow_has_a_gpu_already_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_work(devices: object, kind: str) -> None:
        raise RuntimeError("Visible devices cannot be modified after being initialized")

    monkeypatch.setattr(tf.config, "set_visible_devices", at_work)
    configure_tensorflow(1)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["a GPU"])
    with pytest.raises(RuntimeError, match="Visible devices"):
        configure_tensorflow(1)


def test_b70_workers_take_a_gpus_memory_as_they_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault B70: by default TensorFlow takes nearly all of it for the first worker."""
    grown: list[Any] = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [f"{kind} 0", f"{kind} 1"])
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda gpu, on: grown.append((gpu, on)))
    start_tensorflow(threads=None, device=None)
    assert grown == [("GPU 0", True), ("GPU 1", True)]
