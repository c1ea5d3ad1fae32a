"""What a worker sends on its training stream: pushes, what it keeps back, the rows that it wants, and questions."""

from __future__ import annotations

from grpc_ps.client.shared.codec import ChunkView, detach_chunk
from grpc_ps.client.shared.errors import Fenced, InvalidPush
from grpc_ps.protos import job_pb2
from grpc_ps.protos.parameter_server_pb2 import Ask, PushHeader, PushPullRequest
from grpc_ps.psserver.lead.coordinator import Coordinator
from grpc_ps.psserver.part import Part, check_length
from grpc_ps.psserver.replay import Replay
from grpc_ps.psserver.residual_part import ResidualPart
from grpc_ps.psserver.sessions import Session
from grpc_ps.psserver.tail import WantsPart
from grpc_ps.psserver.upstream import Upstream


class Incoming:
    """Takes the messages of an attached stream, in their order.

    A header begins something, chunks follow, an end makes it whole. What nobody waits for any more is skipped to its
    end. Not guarded: used by the event loop alone.

    Args:
        session: the stream's.
        coordinator: on shard 0 the lead, elsewhere None.
    """

    def __init__(self, session: Session, replay: Replay, upstream: Upstream, coordinator: Coordinator | None) -> None:
        self._session = session
        self._replay = replay
        self._upstream = upstream
        self._coordinator = coordinator
        self._part: Part | ResidualPart | WantsPart | None = None
        self._skipping = False

    def take(self, request: PushPullRequest, chunk: ChunkView | None) -> None:
        """Takes the next message.

        Raises:
            PsError: it is none that may come now; the stream ends with that.
        """
        if request.HasField("ask"):
            check_alone("ask", request, chunk)
            self._ask(request.ask)
            return
        if request.HasField("attach"):
            raise InvalidPush("the stream is attached already")
        if request.HasField("header"):
            self._begin(request.header)
        if self._part is not None and self._part.dropped:
            # Decided before all of it was here: the rest is of no interest.
            self._part, self._skipping = None, True
        if chunk is not None and not self._skipping:
            with self._replay.times.during("stage"):
                part = self._unfinished()
                if not isinstance(part, Part):
                    check_length(part, chunk, self._replay.chunk_bytes)
                part.write(chunk)
        if request.end:
            self._end()

    def _ask(self, ask: Ask) -> None:
        self._check_mine(ask.id)
        self._check_between("`ask`")
        if self._coordinator is None:
            raise InvalidPush("`ask` goes to shard 0")
        self._coordinator.ask(ask.id.worker, ask.id.incarnation, ask.sequence, out_of_data=ask.out_of_data)

    def _check_between(self, what: str) -> None:
        """Refuses what may not come in the middle of a push that is not decided."""
        if self._part is not None and not self._part.dropped:
            raise InvalidPush(f"{self._part}: not ended before {what}")

    def _check_mine(self, identity: job_pb2.Identity) -> None:
        self._replay.identity.check(identity)
        if (identity.worker, identity.incarnation) != (self._session.worker, self._session.incarnation):
            raise Fenced("the message is of another worker than its stream")

    def _begin(self, header: PushHeader) -> None:
        self._check_mine(header.id)
        self._replay.admission.check(header.id.worker, header.id.incarnation)
        if header.kind == PushHeader.KIND_RESIDUAL and isinstance(self._part, Part):
            # Another shard has told the worker that this push is late; here that may not have been carried out yet.
            self._replay.staging.drop(self._session.worker, self._session.incarnation)
        self._check_between("the next push")
        if header.kind == PushHeader.KIND_RESIDUAL:
            self._part = self._replay.residuals.receive(header)
            self._skipping = self._part is None
            return
        if header.kind == PushHeader.KIND_WANTS and self._replay.plan is not None and self._replay.plan.tables.specs:
            self._part, self._skipping = WantsPart(header, self._replay.plan.tables), False
            return
        if header.kind not in (PushHeader.KIND_GRADIENTS, PushHeader.KIND_VALUES):
            raise InvalidPush(f"push {header.sequence}: unknown kind {header.kind}")
        values = header.kind == PushHeader.KIND_VALUES
        if not values and not header.examples:
            raise InvalidPush(f"push {header.sequence}: no examples")
        self._part = self._replay.staging.begin(header)
        self._replay.at("pushed.header")
        self._skipping = self._part is None
        if self._part is not None and not values and self._coordinator is not None:
            # Its round may be closed; then it is dropped in this very call.
            self._coordinator.begun(header)

    def _unfinished(self) -> Part | ResidualPart | WantsPart:
        if self._part is None:
            raise InvalidPush("a chunk or an end without a header")
        return self._part

    def _end(self) -> None:
        if self._skipping:
            self._skipping = False
            return
        part = self._unfinished()
        self._part = None
        with self._replay.times.during("stage"):
            report = part.finish()
        if not isinstance(part, ResidualPart):
            self._session.wanted = part.wanted or self._session.wanted
        if report is None:
            return
        self._replay.times.count("pushes")
        self._replay.at("pushed.whole")
        self._upstream.whole(report)


def parse(data: bytes) -> tuple[PushPullRequest, ChunkView | None]:
    """A message, and the chunk that it brings. Raises InvalidPush for what is none."""
    try:
        return detach_chunk(PushPullRequest, data)
    except ValueError as error:
        raise InvalidPush(str(error)) from error


def check_alone(name: str, request: PushPullRequest, chunk: ChunkView | None) -> None:
    """Refuses a message that has more in it than what `name` says: InvalidPush."""
    if chunk is not None or len(request.ListFields()) > 1:
        raise InvalidPush(f"`{name}` stands alone in its message")
