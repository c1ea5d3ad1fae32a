"""What a worker keeps back of its pushes is given to shards for a checkpoint, and got from one."""

from __future__ import annotations

from collections.abc import Sequence

from grpc_ps.client.feedback import Feedback
from grpc_ps.client.links import Links
from grpc_ps.client.membership import Membership
from grpc_ps.client.pushes import Push, push_messages
from grpc_ps.client.shared.blocks import Block
from grpc_ps.client.shared.wire_form import push_form
from grpc_ps.protos import parameter_server_pb2 as wire


class Keeping:
    """Answers the shards. Used by the session's thread.

    Args:
        shards: the blocks of the placement, by shard.

    Attributes:
        feedback: of a job whose pushes are reduced; None elsewhere, where nothing is ever asked.
    """

    def __init__(self, shards: Sequence[Sequence[Block]], membership: Membership) -> None:
        form = push_form(membership.job.settings)
        self.feedback = Feedback(shards, form) if form.lossy else None
        self._identity = membership.identity
        self._chunk_bytes = membership.chunk_bytes

    def attached(self, links: Links, attached: list[wire.Attached], *, begun: bool) -> None:
        """Takes what the shards say when links are made. `begun`: this worker has pushed already.

        Raises:
            PsError: a link has ended, or what came is not what it should be.
        """
        for shard, said in enumerate(attached):
            if said.residual_bytes and self.feedback is not None:
                kept = self.feedback.kept(shard, applied=False)
                # Whoever has pushed knows better.
                destinations = [array.copy() for array in kept] if begun else kept
                links.read_image(shard, self.feedback.layout(shard), destinations, said.residual_bytes)

    def answer(self, links: Links, shard: int, request: wire.ResidualRequest, push: Push | None) -> None:
        """Sends what is kept back as of the request's position; `push` is the one on its way. Raises PsError."""
        header = wire.PushHeader(id=self._identity, kind=wire.PushHeader.KIND_RESIDUAL, position=request.position)
        if self.feedback is None:
            links.send_to(shard, iter((wire.PushPullRequest(header=header, end=True).SerializeToString(),)))
            return
        layout = self.feedback.layout(shard)
        applied = push is not None and push.feedback is not None and push.header.sequence == request.applied
        header.total_bytes = layout.total_bytes
        kept = [array.data for array in self.feedback.kept(shard, applied=applied)]
        links.send_to(shard, push_messages(header, layout, self._chunk_bytes, kept))
