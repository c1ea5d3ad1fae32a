"""The shards' updates without a network: what streams, staging and replay do to numbers, and nothing else of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from grpc_ps.client.shared.blocks import ParameterSpec, place
from grpc_ps.client.shared.codec import to_proto
from grpc_ps.client.shared.image import Layout, aligned_buffer, block_views
from grpc_ps.protos.job_pb2 import JobSpec
from grpc_ps.protos.job_pb2 import Settings as SettingsMessage
from grpc_ps.psserver.lead.clipping import Clipping
from grpc_ps.psserver.lead.log import Apply, Pin, PushId, Weighted
from grpc_ps.psserver.lead.settings import complete
from grpc_ps.psserver.part import Image
from grpc_ps.psserver.plan import Plan
from grpc_ps.psserver.squares import squares
from grpc_ps.psserver.store import Store
from grpc_ps.psserver.updates import Updates

Arrays = Mapping[str, np.ndarray]
CHUNK = 1 << 20


def plan_of(specs: Sequence[ParameterSpec], shard: int = 0, shards: int = 1, **stated: Any) -> Plan:
    """The plan of one shard, with the defaults for whatever is not stated."""
    job = JobSpec(
        parameters=[to_proto(spec) for spec in specs],
        settings=SettingsMessage(**complete(stated)),  # type: ignore[arg-type]
        plan_fingerprint=place(specs, shards).fingerprint,
    )
    return Plan(job, shard, shards)


def fill(layout: Layout, buffer: np.ndarray, arrays: Arrays) -> None:
    """Writes the image of arrays."""
    for block, view in zip(layout.blocks, block_views(layout, buffer), strict=True):
        view[...] = np.ravel(arrays[block.parameter])[block.start : block.stop]


def image_of(layout: Layout, arrays: Arrays) -> Image:
    """The image of arrays, in memory of its own."""
    image = Image(layout, aligned_buffer(layout.total_bytes))
    fill(layout, image.buffer, arrays)
    return image


class UpdatedShards:
    """All shards of a job: gradients go in as whole tensors, the lead's rules say how they are scaled."""

    def __init__(self, values: Arrays, shards: int = 1, frozen: Sequence[str] = (), **stated: Any) -> None:
        self.specs = [
            ParameterSpec(name=name, shape=array.shape, dtype=array.dtype.name, trainable=name not in frozen)
            for name, array in values.items()
        ]
        self.plans = [plan_of(self.specs, shard, shards, **stated) for shard in range(shards)]
        self.step = 0
        self._clipping = Clipping(complete(stated), len(self.specs))
        store: Future[type[Store]] = Future()
        store.set_result(Store)
        self._updates = [Updates(store, CHUNK) for _ in self.plans]
        self._snapshots = [
            updates.open(plan, image_of(plan.values, values))
            for plan, updates in zip(self.plans, self._updates, strict=True)
        ]

    def update(self, pushes: Sequence[Arrays], weights: Sequence[float], rate: float) -> None:
        """One update with the weighted mean of gradients."""
        weighted: Weighted = tuple((PushId(n, n + 1, 1), weight) for n, weight in enumerate(weights))
        images = [[image_of(plan.gradients, push) for push in pushes] for plan in self.plans]
        reduced = len(pushes) > 1 and self._clipping.by_norm
        sums = []
        for plan, updates, mine in zip(self.plans, self._updates, images, strict=True):
            names = sorted(spec.name for spec in self.specs)
            owners = [names.index(block.parameter) for block in self._squared(plan)]
            found = updates.reduce(mine, weighted) if reduced else squares(plan.squared, mine[0].buffer)
            if self._clipping.by_norm:
                sums += zip(owners, found, strict=True)
        self.step += 1
        entry = Apply(self.step, weighted, rate, self._clipping.scales(sums))
        applied = [updates.apply(mine, entry, reduced) for updates, mine in zip(self._updates, images, strict=True)]
        self._snapshots = [snapshot for snapshot, _ in applied]
        assert not any(bad for _, bad in applied)

    def _squared(self, plan: Plan) -> list[Any]:
        shard = self.plans.index(plan)
        return [block for block in plan.placement.shards[shard] if block.trainable and block.floating]

    def values(self, *, averages: bool = False) -> dict[str, np.ndarray]:
        """What all shards hold, put together; or what a reader of averages gets."""
        whole = {spec.name: np.zeros(spec.size, spec.dtype) for spec in self.specs}
        pin = Pin(1, self.step, 1, averages)
        for plan, updates, values in zip(self.plans, self._updates, self._snapshots, strict=True):
            snapshot = updates.pinned(pin, values)
            for region, buffer in zip(plan.values.regions, snapshot._buffers, strict=True):
                elements = np.frombuffer(buffer, region.dtype)
                for block, span in region.spans():
                    whole[block.parameter][block.start : block.stop] = elements[span]
        return {spec.name: whole[spec.name].reshape(spec.shape) for spec in self.specs}
