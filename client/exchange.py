"""What goes over the links of a session: a push or a question to all shards, and their one answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from grpc_ps.client.answers import Answers, Reply
from grpc_ps.client.connection import RETRIED, Connection
from grpc_ps.client.keeping import Keeping
from grpc_ps.client.links import Links, Shard
from grpc_ps.client.membership import Membership
from grpc_ps.client.parameters import Parameters
from grpc_ps.client.pushes import Push
from grpc_ps.client.row_traffic import RowTraffic, Wants
from grpc_ps.client.shared.errors import PeerLost, PsError
from grpc_ps.client.shared.logs import event
from grpc_ps.client.shared.rows import Rows
from grpc_ps.client.step_times import RECEIVE, StepTimes
from grpc_ps.protos import parameter_server_pb2 as wire

_LOGGER = logging.getLogger(__name__)


class Exchange:
    """Sends to all shards and reads their answers, over links that are made again when they break.

    First it is said what is awaited (`start`, `want`, `question`), then it is sent; what fails in that is left to
    `collect`, which finds the links closed, and to `recover`. Used by the session's thread, but for `connection`,
    which any thread may close.

    Attributes:
        connection: the links.
        push: the one that is on its way, None while there is none.
        out_of_data: whether questions say that this worker's own data is used up.

    Args:
        attach_timeout, reconnect_timeout: seconds for shards that still start, and for shards out of reach.
    """

    def __init__(
        self,
        membership: Membership,
        parameters: Parameters,
        shards: Sequence[Shard],
        *,
        attach_timeout: float,
        reconnect_timeout: float,
    ) -> None:
        self.connection = Connection(
            shards,
            membership.identity,
            membership.job if membership.opener else None,
            reconnect_timeout,
            first_timeout=attach_timeout,
            recovers=membership.recovery > 0,
            on_attached=lambda links, said: self._keeping.attached(links, said, begun=self._sequence > 0),
        )
        self.push: Push | None = None
        self.out_of_data = False
        self._membership = membership
        self._images = parameters
        self._rows = RowTraffic(parameters.tables, len(shards))
        self._keeping = Keeping([images.blocks for images in parameters.shards], membership)
        self._sequence = 0
        self._answers = Answers(len(shards), 0)

    def start(
        self,
        header: wire.PushHeader,
        tensors: Mapping[str, Any],
        rows: Mapping[str, Rows] | None = None,
        wants: Wants | None = None,
    ) -> None:
        """Makes the push that `send_push` sends, and whose answer is awaited from now on.

        Raises:
            InvalidPush: tensors or rows do not fit. UsageError: there are more rows than a push may have.
        """
        values = header.kind == wire.PushHeader.KIND_VALUES
        flat = self._images.flatten(tensors, values=values)
        tails = None if values else self._rows.tails(rows or {}, wants)
        self._sequence += 1
        header.sequence = self._sequence
        header.id.CopyFrom(self._membership.identity)
        self.push = Push(header, flat, self._keeping.feedback, tails)
        self._answers = Answers(len(self._images.shards), self._sequence)

    def question(self) -> None:
        """Awaits an answer that is not of a push."""
        self._answers = Answers(len(self._images.shards), 0)

    def want(self, wants: Wants) -> list[Iterator[bytes]]:
        """Makes the messages that `send_wants` sends. Raises as `start`."""
        header = wire.PushHeader(id=self._membership.identity, kind=wire.PushHeader.KIND_WANTS)
        messages = self._rows.requests(wants, header, self._membership.chunk_bytes)
        self.question()
        return messages

    def send_push(self) -> None:
        """Sends the push to all shards."""
        self._attempt(lambda links: self._send_to(links, range(len(self._images.shards))))

    def send_wants(self, messages: Sequence[Iterator[bytes]]) -> None:
        """Names rows to the shards, and asks for them."""

        def send(links: Links) -> None:
            for shard, of_shard in enumerate(messages):
                links.send_to(shard, of_shard)
            self._ask(links)

        self._attempt(send)

    def ask(self) -> None:
        """Asks the lead what to do."""
        self._attempt(self._ask)

    def _attempt(self, action: Callable[[Links], None]) -> None:
        try:
            action(self.connection.attached())
        except RETRIED as error:
            event(_LOGGER, "link_broken", logging.DEBUG, why=error)

    def _send_to(self, links: Links, shards: Sequence[int]) -> None:
        if self.push is not None and shards:
            size, images = self._membership.chunk_bytes, self._images.shards
            parts = {shard: self.push.messages(shard, images[shard], size) for shard in shards}
            links.send(parts, self.push.header.sequence)

    def _ask(self, links: Links) -> None:
        ask = wire.Ask(id=self._membership.identity, sequence=self._sequence, out_of_data=self.out_of_data)
        links.streams[0].send(wire.PushPullRequest(ask=ask).SerializeToString())

    def collect(self, times: StepTimes) -> Reply:
        """Reads until the answers are complete. Raises PsError when the links have ended."""
        links = self.connection.links
        if links is None:
            raise PeerLost("not attached")
        reply = None
        while reply is None:
            images = self._images.shards[shard := self._answers.lagging()]
            rows = self._rows.receiver(shard)
            answer = links.read(shard, images.released, images.destinations, times.answer_begins, rows)
            times.lap(RECEIVE)
            if answer.HasField("residual"):
                self._keeping.answer(links, shard, answer.residual, self.push)
            reply = self._answers.add(shard, answer)
        return reply

    def decided(self, reply: Reply) -> bool:
        """Takes what became of the push; returns whether there was one, of gradients."""
        return self.push is not None and self.push.decided(reply.outcome)

    def complete(self, reply: Reply) -> Reply:
        """Ends the exchange; returns the reply with the rows that were wanted."""
        reply = self._rows.complete(reply)
        self.push = None
        self.connection.worked()
        return reply

    def overtaken(self, end: Reply) -> Reply:
        """The end of the job, which came another way than as an answer, with what became of the push on its way."""
        return end if self.push is None else self._answers.overtaken(end)

    def recover(self, error: PsError) -> None:
        """Has all links made again after `error`, and what is missing sent again. Raises as `Connection.recover`."""
        self.connection.recover(error, self._resume)

    def _resume(self, links: Links, held: Sequence[int]) -> None:
        """Asks, and sends the push to those shards that do not hold it whole."""
        self._answers.restart()
        # Asked before the push can be decided: the lead answers a push that is decided already once more.
        self._ask(links)
        if not self._answers.decided:
            self._send_to(links, [shard for shard, sequence in enumerate(held) if sequence < self._sequence])
