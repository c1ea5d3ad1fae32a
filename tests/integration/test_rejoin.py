"""A worker is killed in the middle of a round (fault B27): nobody waits for ever, and nothing is half-applied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from flaky_link import links_to
from history import wait_for
from light_process import light_process
from local_cluster import LocalCluster

from grpc_ps.client.shared.errors import JobFailed
from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.log import Dismiss

# Nobody who is only slow loses it.
LEASE = 60.0
STEPS, AT = 20, 10
PRESETS = {"mode": "sync", "workers": 3, "learning_rate": 2.0**-10, "steps": STEPS}
NAMES = ["w", "v"]
FINAL = dict.fromkeys(NAMES, -STEPS / 1024)


@contextmanager
def three(cluster: LocalCluster, hold: Path, addresses: str = "") -> Iterator[list[Command]]:
    """Three processes; worker 1 (which may reach the shards by other addresses) waits before it pushes at step `AT`."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                Command(
                    *light_process(
                        addresses or cluster.addresses if index == 1 else cluster.addresses,
                        index=index,
                        names=NAMES,
                        **({"hold": [3 * AT, str(hold)]} if index == 1 else {}),
                    )
                )
            )
            for index in range(3)
        ]


def restart(cluster: LocalCluster) -> Command:
    return Command(*light_process(cluster.addresses, index=1, names=NAMES))


def held(cluster: LocalCluster, worker: Command) -> None:
    """Waits until worker 1 computes on step `AT`, and the others' pushes of it are whole."""
    worker.until(r"^step 3[0-2]$")
    assert cluster.history.step == AT


def kill(cluster: LocalCluster, worker: Command) -> None:
    """Kills worker 1, and waits until it is missed."""
    worker.process.kill()
    worker.wait()
    cluster.end_lease(1)
    cluster.history.until(lambda: any(lost(entry) for _, entry in cluster.history.entries[0]))


def test_b27_without_a_restart_all_end_and_name_the_lost_worker(tmp_path: Path) -> None:
    """Fault B27 (a): exit 4 after lease and rejoin timeout."""
    limits = Limits(lease=LEASE, rejoin=1.5)
    with LocalCluster(2, presets=PRESETS, limits=limits) as cluster, three(cluster, tmp_path / "go-on") as workers:
        held(cluster, workers[1])
        kill(cluster, workers[1])
        assert [workers[0].wait(), workers[2].wait()] == [4, 4]
        ended = cluster.wait_ended()
    for text in (*map(str, ended), workers[0].lines[-1], workers[2].lines[-1]):
        assert "worker 1 (" in text
        assert "was lost and nobody took its place for 1.5 s" in text
    assert [isinstance(error, JobFailed) and error.exit_code for error in ended] == [4, 4]
    assert [len(updates) for updates in cluster.history.updates] == [AT, AT]


def test_b27_with_a_restart_training_completes_with_the_same_weights(tmp_path: Path) -> None:
    """Fault B27 (b): the newcomer gets the lost batch; weights are those of an uninterrupted run."""
    with (
        LocalCluster(2, presets=PRESETS, limits=Limits(lease=LEASE)) as cluster,
        three(cluster, tmp_path / "go-on") as workers,
    ):
        held(cluster, workers[1])
        kill(cluster, workers[1])
        with restart(cluster) as heir:
            assert [heir.wait(), workers[0].wait(), workers[2].wait()] == [0, 0, 0], heir.text
        assert cluster.wait_ended() == [None, None]
    check_complete(cluster, [workers[0], workers[2]])


@pytest.mark.parametrize("missing", [0, 1])
def test_b27_a_push_that_reached_one_shard_only_is_never_applied(tmp_path: Path, missing: int) -> None:
    """Fault B27 (c): killed after it pushed to one shard and before the other."""
    go_on = tmp_path / "go-on"
    with (
        LocalCluster(2, presets=PRESETS, limits=Limits(lease=LEASE)) as cluster,
        links_to(cluster.addresses) as links,
        three(cluster, go_on, ",".join(link.address for link in links)) as workers,
    ):
        held(cluster, workers[1])
        links[missing].hold(to_client=False)
        there: Any = cluster.servers[1 - missing]._replay.staging
        go_on.touch()
        wait_for_part(there)
        assert cluster.history.step == AT
        kill(cluster, workers[1])
        with restart(cluster) as heir:
            assert [heir.wait(), workers[0].wait(), workers[2].wait()] == [0, 0, 0], heir.text
        assert cluster.wait_ended() == [None, None]
    check_complete(cluster, [workers[0], workers[2]])
    (end,) = [entry for entry in cluster.history.of(Dismiss) if lost(entry)]
    assert all(used.push.incarnation != end.incarnation for used in cluster.history.updates[0][AT].pushes)


def wait_for_part(staging: Any) -> None:
    def arrived() -> bool:
        return any(part.header.id.worker == 1 and part.header.batch >= 3 * AT for part in staging.all_whole())

    wait_for(arrived, "the push to be whole on one shard")


def lost(entry: object) -> bool:
    return isinstance(entry, Dismiss) and entry.worker == 1 and entry.reason == "FENCED"


def check_complete(cluster: LocalCluster, workers: list[Command]) -> None:
    history = cluster.history
    history.wait_equal()
    history.check_rounds(lambda update: 3)
    assert [len(updates) for updates in history.updates] == [STEPS, STEPS]
    assert history.applied_batches() == list(range(3 * STEPS))
    for worker in workers:
        assert worker.summary()["values"] == FINAL
