"""Real workers with real models, in threads of this process, on a local cluster."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from light_worker import DEADLINE
from local_cluster import LocalCluster

from grpc_ps.client import PSClient, Pulled, Reply, TrainingSession
from grpc_ps.models import Model
from grpc_ps.worker.config import WorkerConfig
from grpc_ps.worker.run import Worker


@dataclass
class Trained:
    """What one worker saw: its lines, the model it read before it left, its summary, or how it failed.

    `rows` are all rows of the model's tables.
    """

    lines: list[str] = field(default_factory=list)
    pulled: list[Pulled] = field(default_factory=list)
    rows: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    error: BaseException | None = None

    @property
    def read(self) -> Pulled:
        return self.pulled[0]


class Gathering:
    """Lets no worker compute before all have joined, or ended: else the fast are done before the slow have come."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._there: set[int] = set()
        self._news = threading.Condition()

    def note(self, number: int) -> None:
        """That worker has joined, or ended."""
        with self._news:
            self._there.add(number)
            self._news.notify_all()

    def hold(self, number: int, session: TrainingSession) -> None:
        """That worker has joined; its first parameters are kept from it."""
        begin = session.begin

        def gathered() -> Reply:
            reply = begin()
            with self._news:
                everybody = self._news.wait_for(lambda: len(self._there) == self._count, DEADLINE)
            assert everybody, f"only {self._there} of {self._count} workers have joined"
            return reply

        session.begin = gathered  # type: ignore[method-assign]
        self.note(number)


def train_in(
    cluster: LocalCluster,
    factories: Sequence[Callable[[], Model]],
    *,
    on_line: Callable[[str], None] = lambda line: None,
    **config: Any,
) -> list[Trained]:
    """Runs a worker a factory to its end, all at once; `on_line` is told each line that one prints."""
    addresses = tuple(cluster.addresses.split(","))
    settings = WorkerConfig(addresses=addresses, model="test", **{"arguments": {}, "stated": {}, **config})
    trained = [Trained() for _ in factories]
    gathering = Gathering(len(factories))
    workers = [
        _worker(settings, factory, one, on_line, partial(gathering.hold, number))
        for number, (factory, one) in enumerate(zip(factories, trained, strict=True))
    ]

    def run(number: int) -> None:
        try:
            _run(workers[number], trained[number])
        finally:
            gathering.note(number)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(workers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive(), "a worker did not end"
    return trained


def _worker(
    config: WorkerConfig,
    factory: Callable[[], Model],
    one: Trained,
    on_line: Callable[[str], None],
    on_session: Callable[[TrainingSession], None],
) -> Worker:
    def echo(line: str) -> None:
        one.lines.append(line)
        on_line(line)

    def at_end(client: PSClient) -> None:
        one.pulled.append(client.pull())
        for spec in client.status().parameters:
            if spec.table is not None:
                one.rows[spec.name] = client.rows(spec.name, np.arange(spec.shape[0]))

    return Worker(config, factory, echo, on_session=on_session, at_end=at_end)


def _run(worker: Worker, one: Trained) -> None:
    try:
        one.summary = json.loads(worker.run())
    except BaseException as error:
        one.error = error


def train(
    factories: Sequence[Callable[[], Model]],
    *,
    shards: int = 1,
    stated: Mapping[str, Any] | None = None,
    **presets: Any,
) -> list[Trained]:
    """Trains on a cluster of its own, which has to end by itself; every worker must have ended well."""
    with LocalCluster(shards, presets={"workers": len(factories), **presets}) as cluster:
        trained = train_in(cluster, factories, stated=stated or {})
        assert [one.error for one in trained] == [None] * len(factories)
        assert cluster.wait_ended() == [None] * shards
    return trained
