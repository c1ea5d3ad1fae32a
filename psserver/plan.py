"""What a job's parameters mean for one shard."""

from __future__ import annotations

from grpc_ps.client.shared.blocks import Block, Placement, place
from grpc_ps.client.shared.errors import Mismatch
from grpc_ps.client.shared.image import Layout, gradients_layout, values_layout
from grpc_ps.client.shared.rows import rows_on_shard, tables_of
from grpc_ps.client.shared.wire_form import WireForm, narrow_values, pull_form, push_form, residuals_layout
from grpc_ps.protos import job_pb2
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.settings import Signature, check_agreement, check_parameters
from grpc_ps.psserver.messages import signatures, specs_of, stated
from grpc_ps.psserver.squares import Span, trainable_spans
from grpc_ps.psserver.tail import ShardTables


class Plan:
    """What a job's parameters mean for one shard.

    Attributes:
        blocks: this shard's, of the placement.
        values, gradients: layouts of the two images.
        push: in which form gradients come.
        released: layout of the values as they go to workers; the same object as `values` where nothing is rounded.
        residuals: layout of what a worker keeps back of its pushes; without blocks where that is nothing.
        squared: the blocks of a push whose squares are reported; none where the job clips by no norm.
        places: how many workers the job admits, by the settings that it is opened with.
        clip_value: the limit of each element of a gradient; 0 means none.
        clips_norm: whether the squares of pushes are reported.
        tables: the job's, of which this shard has some rows each.
    """

    def __init__(self, job: job_pb2.JobSpec, shard: int, shard_count: int) -> None:
        self.job = job
        specs = specs_of(job)
        self.placement: Placement = place(specs, shard_count)
        if self.placement.fingerprint != job.plan_fingerprint:
            raise Mismatch("the worker places the parameters otherwise than this shard: are the versions equal?")
        self.blocks: tuple[Block, ...] = self.placement.shards[shard]
        blocks = self.blocks
        self.values: Layout = values_layout(blocks)
        self.gradients: Layout = gradients_layout(blocks)
        self.push: WireForm = push_form(job.settings)
        pull = pull_form(job.settings)
        self.released: Layout = narrow_values(blocks, pull) if pull.lossy else self.values
        self.residuals: Layout = residuals_layout(blocks, self.push)
        self.clips_norm = bool(job.settings.clip_norm or job.settings.global_clip_norm)
        self.squared: tuple[Span, ...] = trainable_spans(blocks) if self.clips_norm else ()
        self.clip_value: float = job.settings.clip_value
        sync, settings = job.settings.mode == "sync", job.settings
        self.places: int = settings.workers + settings.backup if sync else settings.max_workers
        self.tables = ShardTables(tables_of(specs), shard, shard_count)
        self._index = {name: index for index, name in enumerate(sorted(spec.name for spec in specs))}

    def bytes_on(self, shard: int) -> int:
        """Bytes of values on a shard, with the rows of tables; of a lazy one there is what is touched."""
        count = self.tables.shard_count
        whole = [spec for spec in self.tables.specs if spec.table is not None and not spec.table.lazy]
        rows = sum(rows_on_shard(spec.shape[0], shard, count) * spec.shape[1] * 4 for spec in whole)
        return rows + sum(block.nbytes for block in self.placement.shards[shard])

    def factors(self, scales: tuple[float, ...]) -> list[float]:
        """Returns what each block of the image of a push is multiplied by; only trainable ones by other than 1.

        Args:
            scales: as `Apply.scales`: none, one for all parameters, or one for each in order of their names.
        """
        if not scales:
            return [1.0] * len(self.gradients.blocks)
        one = len(scales) == 1
        return [
            (scales[0] if one else scales[self._index[block.parameter]]) if block.trainable else 1.0
            for block in self.gradients.blocks
        ]

    def table_factors(self, scales: tuple[float, ...]) -> list[float]:
        """Returns the same for each table."""
        names = [spec.name for spec in self.tables.specs]
        if len(scales) > 1:
            return [scales[self._index[name]] for name in names]
        return [scales[0] if scales else 1.0] * len(names)


def check_same(ours: job_pb2.JobSpec, theirs: job_pb2.JobSpec) -> None:
    """Refuses a description of a job that is not the one here.

    Raises:
        Mismatch: names the first parameter or setting that differs, with both values.
    """
    if ours == theirs:
        return
    try:
        check_parameters(_signatures(ours), _signatures(theirs))
        check_agreement(stated(ours.settings), stated(theirs.settings))
    except Refusal as refusal:
        raise Mismatch(refusal.detail) from None
    raise Mismatch("`attach` describes another job than the one here")


def _signatures(job: job_pb2.JobSpec) -> dict[str, Signature]:
    return signatures(specs_of(job))
