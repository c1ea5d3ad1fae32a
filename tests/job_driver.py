"""Drives the decisions of the lead as a cluster would: workers and shards by script, time by hand."""

from __future__ import annotations

from typing import Any

from grpc_ps.psserver.lead.clipping import Squares
from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.joining import JoinReply, JoinRequest
from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.log import Answer, Apply, Entry, PushId
from grpc_ps.psserver.lead.membership import Member
from grpc_ps.psserver.lead.parts import Push
from grpc_ps.psserver.lead.resuming import Restored
from grpc_ps.psserver.lead.saving import SavedPart, SavePlan
from grpc_ps.psserver.lead.settings import Signature

W = {"w": Signature("w", (), "float32", True)}


class Driver:
    """A job with scripted workers: every worker joins, pushes and asks as told."""

    def __init__(
        self,
        *,
        shards: int = 1,
        limits: Limits | None = None,
        plan: SavePlan | None = None,
        restored: Restored | None = None,
        keep_alive: bool = False,
        queued: bool = False,
        **presets: Any,
    ) -> None:
        self.job = Job(
            run=7,
            shard_count=shards,
            presets=presets,
            limits=limits or Limits(),
            plan=plan,
            restored=restored,
            keep_alive=keep_alive,
            queued=queued,
        )
        self.now = 0.0
        self.seen = 0
        for shard in range(1, shards):
            self.job.attendance.follow(shard, shards, 100 + shard, f"s{shard}", self.now)

    def request(self, nonce: int, index: int | None = None, **changes: Any) -> JoinRequest:
        values = {
            "nonce": nonce,
            "name": f"host:{nonce}",
            "index": index,
            "run": 0,
            "shard_count": self.job.shards.count,
            "model": "linear",
            "parameters": W,
            "stated": {},
            "defaults": {"steps": 1000},
        }
        return JoinRequest(**{**values, **changes})

    def try_join(self, nonce: int, index: int | None = None, **changes: Any) -> JoinReply:
        return self.job.join(self.request(nonce, index, **changes), self.now)

    def join(self, nonce: int, index: int | None = None, **changes: Any) -> Member:
        reply = self.try_join(nonce, index, **changes)
        assert reply.member is not None, reply
        return reply.member

    def open(self, workers: int = 1) -> list[Member]:
        members = [self.join(1)]
        self.push(members[0], values=True)
        members += [self.join(nonce) for nonce in range(2, workers + 1)]
        for member in members:
            self.job.ask(member.worker, member.incarnation, member.sequence, self.now)
        return members

    def header(self, member: Member, **changes: Any) -> Push:
        return Push(
            id=PushId(member.worker, member.incarnation, member.sequence + 1),
            base_step=changes.get("base_step", member.base_steps[-1] if member.base_steps else 0),
            batch=changes.get("batch", member.batch or 0),
            examples=changes.get("examples", 1),
            values=changes.get("values", False),
        )

    def begin(self, member: Member) -> Push:
        """The header of the member's next push arrives at the lead."""
        push = self.header(member)
        self.job.begun(push, self.now)
        return push

    def push(
        self,
        member: Member,
        *,
        shards: range | None = None,
        non_finite: str = "",
        squares: Squares = (),
        **changes: Any,
    ) -> Push:
        push = self.header(member, **changes)
        for shard in shards or range(self.job.shards.count):
            self.job.whole(shard, push, non_finite, self.now, squares)
        return push

    def commit(self, error: str = "") -> int:
        """All shards write their parts of the checkpoint that is on its way, and the lead commits it; its step."""
        saving = self.job.saving
        assert saving is not None
        assert saving.current is not None
        for shard in range(self.job.shards.count):
            self.job.durability.saved(shard, SavedPart(folder=saving.current.folder, file=f"part {shard}"), self.now)
        attempt = saving.to_commit()
        assert attempt is not None
        self.job.committed(attempt.folder, error, self.now)
        return attempt.state.step

    def news(self) -> list[Entry]:
        """Entries since the last call."""
        entries = [entry for _, entry in self.job.log.after(self.seen)]
        self.seen = self.job.log.position
        return entries

    def applies(self) -> list[Apply]:
        return [entry for _, entry in self.job.log.after(0) if isinstance(entry, Apply)]

    def answers(self, entries: list[Entry]) -> list[Answer]:
        return [entry for entry in entries if isinstance(entry, Answer)]
