"""A worker's part in a job: one logical push and pull over all shards."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, SupportsFloat

from grpc_ps.client.answers import Reply
from grpc_ps.client.exchange import Exchange
from grpc_ps.client.heartbeat import Heartbeat, Lead
from grpc_ps.client.links import Shard
from grpc_ps.client.membership import Membership
from grpc_ps.client.parameters import Array, Parameters
from grpc_ps.client.row_traffic import Wants
from grpc_ps.client.settings import Setting, from_message
from grpc_ps.client.shared.errors import Ending, PsError
from grpc_ps.client.shared.logs import event
from grpc_ps.client.shared.rows import Ids, Rows
from grpc_ps.client.step_times import COMPUTE, ENCODE, INPUT, StepTimes
from grpc_ps.protos import parameter_server_pb2 as wire

__all__ = ["Reply", "TrainingSession"]

_LOGGER = logging.getLogger(__name__)
# Seconds for an answer that is on its way when the lead says that the job is done.
_GRACE = 1.0


class TrainingSession:
    """Sends pushes and waits for what follows; `parameters` is overwritten in place by each release.

    One thread uses it: `open` (the opener only), `begin`, then `send` and `wait` in turn until a reply is `done` (or
    `finish`, which waits for that), then `leave`. `note`, `report`, `interrupt` and the attributes may be used by
    others too. Links that break are made again; nothing is lost or applied twice. `wait` raises PsError where that is
    not possible in time, or not allowed: Fenced, RolledBack and WrongRun end this membership. Tensors given to `open`
    and `send` must not change until `wait` has returned.

    Two threads write here: the worker's and the heartbeat's. `_lock` guards the two fields that are set according to
    what they hold, `global_step` and the verdict; whatever else is shared is replaced as a whole by one assignment, and
    read without the lock.

    Attributes:
        parameters: name -> array in the parameter's shape, 64-byte aligned, the same objects for the session's life.
            They hold zeros before `begin` has returned, and are not to be used while `wait` runs.
        settings: the job's, complete, by the names of `job.proto`; empty for a job that had ended before.
        opener: whether this worker sends the initial values.
        run, generation: the job's number, for joining it again and no other, and that of the lead's log.
        worker, incarnation: its index, and its life's number.
        global_step: the highest that was heard of.
        evaluator: whether this worker holds the lease to evaluate.
        on_evaluator: called with the global step in the heartbeat's thread, at each beat while `evaluator` holds: a
            worker that waits has no other occasion to evaluate.
        times: where it goes: from `wait` to `send` into computing, from `send` to `wait` into input, or as `lap` says.
    """

    def __init__(
        self,
        *,
        membership: Membership,
        parameters: Parameters,
        shards: Sequence[Shard],
        lead: Lead,
        attach_timeout: float = 60.0,
        reconnect_timeout: float = 60.0,
        lost_timeout: float = 60.0,
        on_leave: Callable[[], None] = lambda: None,
    ) -> None:
        """Begins to beat; timeouts in seconds: for shards that still start, for shards out of reach, a silent lead."""
        self.settings: Mapping[str, Setting] = from_message(membership.job.settings)
        self.opener = membership.opener
        self.run, self.generation = membership.identity.run, membership.identity.generation
        self.worker = membership.identity.worker
        self.incarnation = membership.identity.incarnation
        self.parameters: dict[str, Array] = parameters.arrays
        self.global_step = membership.global_step
        self.evaluator = False
        self.on_evaluator: Callable[[int], None] = lambda global_step: None
        self._membership = membership
        self._lead = lead
        self._on_leave = on_leave
        self._exchange = Exchange(
            membership, parameters, shards, attach_timeout=attach_timeout, reconnect_timeout=reconnect_timeout
        )
        self.times = StepTimes()
        self._heartbeat = Heartbeat(
            lead,
            membership.identity,
            self,
            lease=membership.lease,
            lost_timeout=lost_timeout,
            places=_places(self.settings),
        )
        self._lock = threading.Lock()
        self._verdict: Reply | Exception | None = membership.ended
        self._released: Reply | None = None
        if self._verdict is None:
            self._heartbeat.start()

    def open(self, values: Mapping[str, Any]) -> None:
        """Sends the initial values of all parameters to all shards. The opener calls it once, before `begin`."""
        self._exchange.start(wire.PushHeader(kind=wire.PushHeader.KIND_VALUES), values)
        if self._verdict is None:
            self._exchange.send_push()

    def begin(self) -> Reply:
        """Asks what to do and waits for the first release."""
        # The opener's push is answered by itself.
        if self._exchange.push is None and self._verdict is None:
            self._exchange.ask()
        return self.wait()

    def send(
        self,
        gradients: Mapping[str, Any],
        examples: int,
        *,
        base_step: int | None = None,
        rows: Mapping[str, Rows] | None = None,
        wants: Wants | None = None,
    ) -> None:
        """Sends the gradients of the batch of the last reply.

        They were computed with the parameters that came with that, or with those before: then `base_step` is the step
        of the reply before. Rounds do not take those.
        `gradients` has the floating-point parameters by name, as arrays or other C-contiguous buffers; `examples` is
        the push's weight. In a job with tables `rows` has gradients of rows by the table's name, and `wants` the ids
        that the next batch probably needs. Returns when all is handed to gRPC. A broken link is no error here: `wait`
        mends it. Raises InvalidPush for tensors that do not fit, and UsageError for more rows than a push may have.
        """
        released = self._released
        if released is None or released.batch is None:
            raise RuntimeError("`send` needs the batch of a reply: call `begin` or `wait` before")
        self.times.lap(COMPUTE)
        header = wire.PushHeader(
            kind=wire.PushHeader.KIND_GRADIENTS,
            base_step=released.global_step if base_step is None else base_step,
            batch=released.batch,
            examples=examples,
        )
        self._exchange.start(header, gradients, rows, wants)
        if self._verdict is None:
            self._exchange.send_push()
        self.times.lap(ENCODE)

    def wait(self) -> Reply:
        """Waits until the push is decided and the next batch is released, or the job is done.

        All parameters are then of one step, the reply's. May take as long as the other workers do, but not longer than
        the lead is heard of.
        """
        self.times.lap(INPUT)
        while self._verdict is None:
            try:
                reply = self._exchange.collect(self.times)
            except PsError as error:
                self._recover(error)
            else:
                if self._exchange.decided(reply):
                    self._heartbeat.times = self.times.step()
                self._released = reply = self._exchange.complete(reply)
                self._heard(reply.global_step)
                # A release that was under way when the data was used up is of no use any more.
                if reply.done or not self._exchange.out_of_data:
                    return reply
        return self._ended(self._verdict)

    def want(self, ids: Mapping[str, Ids]) -> Reply:
        """Names the rows of tables that the batch of the last reply needs, and waits for them.

        For a batch whose rows were not wanted before it was known. The reply is of that batch at a newer step, or the
        end; a broken link may have lost what was wanted: then it has no `rows`, and they have to be wanted again.
        Raises InvalidPush for what is no table, and UsageError for more rows than a push may have.
        """
        released = self._released
        if released is None or released.batch is None:
            raise RuntimeError("`want` needs the batch of a reply: call `begin` or `wait` before")
        messages = self._exchange.want(Wants(released.batch, ids))
        if self._verdict is None:
            self._exchange.send_wants(messages)
        return self.wait()

    def finish(self) -> Reply:
        """Says that this worker's own share of the data is used up, and waits for the end of the job.

        The batch of the last reply goes back. Returns a reply that is `done`; heartbeats go on until then. To be
        called in place of `send`, and last.
        """
        self._exchange.out_of_data = True
        self._exchange.question()
        if self._verdict is None:
            self._exchange.ask()
        return self.wait()

    def note(self, local_step: int, loss: SupportsFloat | None = None) -> None:
        """Sets what the lead is told: steps this process has computed, and the loss of its last applied push."""
        self._heartbeat.note(local_step, loss)

    def tell(self) -> None:
        """Tells the lead at once what was noted last, before this worker leaves. A lead that is gone need not know."""
        with suppress(PsError):
            self._heartbeat.ask(_GRACE)

    def report(self, global_step: int, metrics: Mapping[str, float]) -> None:
        """Tells the lead the result of an evaluation at that step. Any thread may call it. Raises PsError."""
        request = wire.ReportRequest(id=self._membership.identity, global_step=global_step, metrics=metrics)
        self._lead.report(request)

    def interrupt(self, why: str) -> None:
        """Ends every wait of the session, with Ending. Any thread may call it."""
        self._decide(Ending(why), 0.0)

    def leave(self) -> None:
        """Gives the place back and closes the links. Never raises; calling it again does nothing."""
        # In this order: a heartbeat that waits for answers which are on their way stops when the links are closed.
        self.interrupt("this worker has left the job")
        self._heartbeat.stop()
        leave, self._on_leave = self._on_leave, lambda: None
        try:
            leave()
        except PsError as error:
            event(_LOGGER, "leave_failed", logging.DEBUG, why=error)

    def _recover(self, error: PsError) -> None:
        """Has all links made again; or raises, or there is a verdict."""
        try:
            self._exchange.recover(error)
        except PsError:
            # A shard that is gone after the job's end is no error.
            if not self._lead_says_done():
                raise

    def _lead_says_done(self) -> bool:
        with suppress(PsError):  # A lead that does not answer says nothing: the error that led here is the one to tell.
            self.beat(self._heartbeat.ask(_GRACE))
        return self._verdict is not None

    def beat(self, response: wire.HeartbeatResponse) -> None:
        """Takes what the lead answered. An answer of the end that is under way comes first."""
        self._heard(response.global_step)
        self.evaluator = response.evaluator
        if response.evaluator and not response.done:
            self.on_evaluator(response.global_step)
        if response.done:
            ended = Reply(
                done=True,
                global_step=response.global_step,
                exit_code=response.exit_code,
                reason=response.reason,
            )
            self._decide(ended, _GRACE)

    def lost(self, error: Exception) -> None:
        """Ends the session: the lead is gone, or does not know this worker any more, or the heartbeat has failed."""
        self._decide(error, 0.0)

    def _heard(self, global_step: int) -> None:
        with self._lock:
            self.global_step = max(self.global_step, global_step)

    def _decide(self, verdict: Reply | Exception, grace: float) -> None:
        """Ends every wait, now or after the links have had `grace` seconds to end by themselves."""
        deadline = time.monotonic() + grace
        while self._exchange.connection.open and time.monotonic() < deadline:
            time.sleep(0.02)
        with self._lock:
            self._verdict = self._verdict or verdict
        self._exchange.connection.close()

    def _ended(self, verdict: Reply | Exception) -> Reply:
        if isinstance(verdict, Exception):
            raise verdict
        return self._exchange.overtaken(verdict)


def _places(settings: Mapping[str, Setting]) -> int:
    """How many workers may be members."""
    names = ("workers", "backup") if settings.get("mode") == "sync" else ("max_workers",)
    return sum(int(settings.get(name, 0)) for name in names)
