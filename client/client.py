"""The client of a cluster: one logical parameter server, however many shards it has."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from grpc_ps.client import reading
from grpc_ps.client.answers import Reply
from grpc_ps.client.jobs import JobQueue
from grpc_ps.client.joining import JoinRequest, join
from grpc_ps.client.parameters import Parameters
from grpc_ps.client.reading import Pulled
from grpc_ps.client.row_gradients import as_rows
from grpc_ps.client.session import TrainingSession
from grpc_ps.client.settings import Changed, changed, set_request
from grpc_ps.client.shard_client import ShardClient
from grpc_ps.client.shared.addresses import addresses_of
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.errors import PeerLost, PeerUnreachable
from grpc_ps.client.shared.faults import Faults
from grpc_ps.client.shared.security import Security
from grpc_ps.client.shared.wire_form import pull_form
from grpc_ps.client.status import (
    CheckpointStatus,
    ClusterStatus,
    Evaluation,
    Saved,
    ShardStatus,
    ShardTimes,
    TableStatus,
    WorkerStatus,
    WorkerTimes,
    cluster_status,
)
from grpc_ps.protos import parameter_server_pb2 as wire

__all__ = [
    "Changed",
    "CheckpointStatus",
    "ClusterStatus",
    "Evaluation",
    "PSClient",
    "Pulled",
    "Saved",
    "ShardStatus",
    "ShardTimes",
    "TableStatus",
    "WorkerStatus",
    "WorkerTimes",
]

# Seconds for the word to the lead that a worker leaves: its lease ends anyway.
_LEAVE_SECONDS = 2.0
# Seconds that the lead waits, at the most, for a checkpoint that was asked for.
_LONGEST_SAVE = 600.0
# Seconds between two looks whether watching is to stop.
_LOOK_SECONDS = 0.1


class PSClient:
    """Talks to the shards of one cluster; a context manager. Nothing is connected before the first call.

    Args:
        addresses: all shards, shard 0 first: "host:port,host:port" or a sequence of such items.
        timeout: seconds that a peer may be out of reach while joining and training, and that `pull` may take.
            `status` and `stop` wait 10 s for the lead's answer, whatever is given here.
        security: TLS and token; None for neither. UsageError if the token would leave this machine in the clear.
        faults: failures of the calls, made on purpose.

    Attributes:
        session: of the job that was joined; None before.
        jobs: the queue of a cluster that stands, for submitting jobs to it.
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        timeout: float = 60.0,
        security: Security | None = None,
        faults: Faults | None = None,
    ) -> None:
        self.addresses = addresses_of(addresses, "addresses")
        # Those of a LocalCluster know whether there is anybody.
        self._still: Callable[[], object] = getattr(addresses, "still", lambda: None)
        self.timeout = timeout
        self.session: TrainingSession | None = None
        self._recovery = 0.0
        self._shards = [ShardClient(address, security, faults) for address in self.addresses]
        self.jobs = JobQueue(self._shards[0])

    def __enter__(self) -> PSClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the job, if it was joined, and closes all connections."""
        if self.session is not None:
            self.session.leave()
        for shard in self._shards:
            shard.close()

    def pull(
        self,
        names: Collection[str] | None = None,
        *,
        averages: bool = False,
        rows: Mapping[str, Any] | None = None,
        tables: Collection[str] = (),
    ) -> Pulled:
        """Reads the parameters of those names, all by default: values of one step, while training goes on.

        With `averages`, those of trainable parameters are their moving averages, if the job keeps any. Of tables only
        what is asked for: `rows` has ids by table, in any order, and `tables` names those of which all rows are wanted
        that the shards hold.

        Raises NotOpen before the job has values, UsageError for a name that it does not have, Mismatch for a list with
        more or fewer shards than the job's, NotLead if the first address is not shard 0's, PeerUnreachable or PeerLost
        for a shard that does not answer, and Full, SnapshotGone or Corrupt if reading again has not helped in time.
        """
        asked = reading.Asked(names=names, averages=averages, rows=rows or {}, tables=tables)
        return reading.pull(self._shards, asked, self.timeout)

    def rows(self, table: str, ids: Any) -> Any:
        """Reads the rows of those ids, of any order, from a table: [n, dim] of one step. Raises as `pull`."""
        return self.pull((), rows={table: ids}).rows[table]

    def status(self) -> ClusterStatus:
        """Asks the lead for the state of the cluster.

        Raises PeerUnreachable or PeerLost if it does not answer, and NotLead if the first address is not shard 0's.
        """
        return cluster_status(self._shards[0].status())

    def watch(
        self,
        interval: float = 1.0,
        *,
        stop: Callable[[], bool] = lambda: False,
        may_return: Callable[[], bool] = lambda: False,
    ) -> Iterator[ClusterStatus]:
        """Yields the state every `interval` seconds, until the job has stopped or the lead has gone, or `stop` says so.

        A lead that does not answer has gone, unless `may_return` says that it may be started again.
        Raises PeerUnreachable only if the lead was never there.
        """
        seen = False
        while True:
            try:
                now = self.status()
            except (PeerUnreachable, PeerLost):
                if not seen:
                    raise
                if not may_return():
                    return
            else:
                yield now
                seen = True
                if now.phase == "stopped":
                    return
            until = time.monotonic() + interval
            while not stop() and (left := until - time.monotonic()) > 0:
                time.sleep(min(left, _LOOK_SECONDS))
            if stop():
                return

    def stop(self) -> int:
        """Ends the job: every process exits 0. Returns its last global step.

        Raises PeerUnreachable or PeerLost if the lead does not answer, and NotLead if the first address is not
        shard 0's.
        """
        return self._shards[0].stop_job()

    def checkpoint(self, timeout: float = _LONGEST_SAVE) -> Saved:
        """Saves the job as it is now, and returns when that is on disk. Training goes on meanwhile.

        Waits for `timeout` seconds, at most ten minutes. A step that is saved already is not saved again.

        Raises CheckpointError if the shards have no folder for it or cannot write, NotOpen before the job has values,
        PeerLost if it was not written in time (it may still be) or the lead does not answer, PeerUnreachable if it
        cannot be reached, and NotLead if the first address is not shard 0's.
        """
        response = self._shards[0].checkpoint(min(timeout, _LONGEST_SAVE))
        return Saved(global_step=response.global_step, path=response.path)

    def set(
        self,
        *,
        mode: str | None = None,
        workers: int | None = None,
        backup: int | None = None,
        min_workers: int | None = None,
        max_staleness: int | None = None,
        learning_rate_factor: float | None = None,
        paused: bool | None = None,
    ) -> Changed:
        """Changes the job while it runs: all that is given or nothing, between two updates. None stays as it is.

        The names are those of `job.proto`'s Settings; a `max_staleness` of -1 means no bound. `learning_rate_factor`
        is multiplied with what the schedule says, and replaces the factor of before. While `paused`, workers finish
        what they compute and get nothing new.

        Raises Mismatch for what is not possible (with the reason), NotOpen before a job runs, UsageError if nothing is
        given, PeerUnreachable or PeerLost if the lead does not answer, and NotLead if the first address is not
        shard 0's.
        """
        request = set_request(
            {
                "mode": mode,
                "workers": workers,
                "backup": backup,
                "min_workers": min_workers,
                "max_staleness": max_staleness,
                "learning_rate_factor": learning_rate_factor,
                "paused": paused,
            }
        )
        return changed(self._shards[0].set_job(request))

    def join(
        self,
        model: str,
        parameters: Sequence[ParameterSpec],
        *,
        stated: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
        index: int | None = None,
        run: int = 0,
        on_wait: Callable[[str], None] = lambda text: None,
        still: Callable[[], object] | None = None,
    ) -> TrainingSession:
        """Becomes a worker of the job, waiting for servers and for others as long as they can be reached.

        Args:
            model: its name, for people.
            parameters: what the model has; must equal the job's.
            stated: settings the caller insists on, by the names of `job.proto`.
            defaults: settings for what nobody states, if this worker opens the job.
            index: the worker's index; None takes a free one.
            run: the job that the caller was a member of before; another one refuses it then. 0 for none.
            on_wait: told every 5 s what is missing.
            still: called while a shard is out of reach; what it raises ends the waiting.

        A session of before is left. Raises PeerUnreachable, or what the lead refuses with: Mismatch, Fenced, Full or
        WrongRun.
        """
        self._shards[0].check_open()
        if self.session is not None:
            self.session.leave()
        request = JoinRequest(
            model=model, parameters=parameters, stated=stated or {}, defaults=defaults or {}, index=index, run=run
        )
        patience = max(self.timeout, self._recovery)
        membership, placement = join(
            self._shards, request, timeout=patience, on_wait=on_wait, still=still or self._still
        )
        recovery = self._recovery = membership.recovery
        leave = wire.LeaveRequest(id=membership.identity)
        self.session = TrainingSession(
            membership=membership,
            parameters=Parameters(parameters, placement, form=pull_form(membership.job.settings)),
            shards=self._shards,
            lead=self._shards[0],
            # A shard that cannot be reached for a lease is lost, and the job with it; one that is there and silent (it
            # stands still, or a link swallows what is sent) gets three. With checkpoints it may come back.
            attach_timeout=patience,
            reconnect_timeout=max(recovery, min(self.timeout, membership.lease or self.timeout)),
            lost_timeout=max(recovery, min(self.timeout, 3 * membership.lease or self.timeout)),
            on_leave=lambda: None if membership.ended else self._shards[0].leave(leave, _LEAVE_SECONDS),
        )
        return self.session

    def push(self, gradients: Mapping[str, Any], examples: int = 1, *, rows: Mapping[str, Any] | None = None) -> Reply:
        """Sends gradients for the batch of the last reply and waits for the next one; `join` and `begin` come before.

        `rows` has those of rows by the table's name, each a tf.IndexedSlices or a pair (ids, values), in any order; of
        a row that is there several times the sum is applied.

        Raises InvalidPush for gradients that do not fit, and what `TrainingSession.wait` raises.
        """
        if self.session is None:
            raise RuntimeError("`push` needs a session: call `join` before")
        of_tables = {name: as_rows(name, gradient) for name, gradient in (rows or {}).items()}
        self.session.send(gradients, examples, rows=of_tables)
        return self.session.wait()
