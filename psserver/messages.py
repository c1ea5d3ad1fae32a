"""The lead's entries and requests <-> their messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import cast

from google.protobuf.message import Message

from grpc_ps.client.shared.blocks import ITEM_BYTES, ParameterSpec
from grpc_ps.client.shared.codec import from_proto
from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.stopwatch import Stopwatch
from grpc_ps.client.shared.tables import TableSpec
from grpc_ps.protos import coordination_pb2 as wire
from grpc_ps.protos import job_pb2
from grpc_ps.protos import parameter_server_pb2 as worker_wire
from grpc_ps.psserver.lead import log
from grpc_ps.psserver.lead.joining import JoinRequest
from grpc_ps.psserver.lead.parts import Push
from grpc_ps.psserver.lead.saving import SavedPart
from grpc_ps.psserver.lead.settings import Settings, Signature
from grpc_ps.psserver.table_memory import TableMemory

_OUTCOME = "OUTCOME_"

MAX_JOB_BYTES = 1 << 36
"""Values of one job: what its blocks, counted one by one, do not stop the lead for longer than a heartbeat."""

MAX_TEXT = 4000
"""Characters of a name, a model's name, or a setting."""


def answer_message(
    entry: log.Answer, *, generation: int, position: int, total_bytes: int, rows: Iterable[int] = ()
) -> worker_wire.Answer:
    """The entry as its worker sees it; `total_bytes` is what this shard releases, with `rows` of each table."""
    message = worker_wire.Answer(
        generation=generation, incarnation=entry.incarnation, position=position, global_step=entry.step
    )
    if entry.result is not None:
        result = entry.result
        message.result.sequence = result.sequence
        message.result.outcome = cast(worker_wire.Outcome, worker_wire.Outcome.Value(_OUTCOME + result.outcome))
        message.result.repeated = result.repeated
        message.result.staleness = result.staleness
        message.result.parameter = result.parameter
    if entry.release is not None:
        release = entry.release
        message.release.batch, message.release.hint, message.release.total_bytes = (
            release.batch,
            release.hint,
            total_bytes,
        )
        message.release.rows.extend(rows)
    if entry.done is not None:
        message.done.SetInParent()
        message.done.exit_code, message.done.reason = entry.done.exit_code, entry.done.reason
    return message


def _answer(worker: int, message: worker_wire.Answer) -> log.Answer:
    result = release = done = None
    if message.HasField("result"):
        theirs = message.result
        outcome = worker_wire.Outcome.Name(theirs.outcome).removeprefix(_OUTCOME)
        result = log.Result(theirs.sequence, outcome, theirs.staleness, theirs.parameter, theirs.repeated)
    if message.HasField("release"):
        release = log.Release(message.release.batch, message.release.hint)
    if message.HasField("done"):
        done = log.Done(message.done.exit_code, message.done.reason)
    return log.Answer(worker, message.incarnation, message.global_step, result, release, done)


def push_name(push: log.PushId) -> wire.PushName:
    """Names a push."""
    return wire.PushName(worker=push.worker, incarnation=push.incarnation, sequence=push.sequence)


def _push_id(name: wire.PushName) -> log.PushId:
    return log.PushId(name.worker, name.incarnation, name.sequence)


def entry_message(position: int, entry: log.Entry, generation: int, job: job_pb2.JobSpec) -> wire.Entry:
    """The entry as followers see it; `job` goes with `open`."""
    message = wire.Entry(position=position)
    match entry:
        case log.Open(push, checkpoint, step):
            name = push_name(push) if push is not None else None
            message.open.CopyFrom(wire.Open(push=name, job=job, checkpoint=checkpoint, global_step=step))
        case log.Save(folder, step, patience_ms):
            message.save.CopyFrom(wire.Save(folder=folder, global_step=step, patience_ms=patience_ms))
        case log.Admit(worker, incarnation):
            message.admit.CopyFrom(wire.Admit(worker=worker, incarnation=incarnation))
        case log.Dismiss():
            message.dismiss.CopyFrom(_dismiss_message(entry))
        case log.Reduce(pushes):
            message.reduce.CopyFrom(wire.Reduce(pushes=_weighted_messages(pushes)))
        case log.Apply(step, pushes, learning_rate, scales):
            weighted = _weighted_messages(pushes)
            apply = wire.Apply(global_step=step, pushes=weighted, learning_rate=learning_rate, scales=scales)
            message.apply.CopyFrom(apply)
        case log.Answer():
            answer = answer_message(entry, generation=generation, position=position, total_bytes=0)
            message.answer.CopyFrom(wire.AnswerEntry(worker=entry.worker, answer=answer))
        case log.Pin(snapshot, step, keep_ms, averages):
            pin = wire.Pin(snapshot=snapshot, global_step=step, keep_ms=keep_ms, averages=averages)
            message.pin.CopyFrom(pin)
        case log.Stop(step, done):
            message.stop.CopyFrom(wire.Stop(global_step=step, exit_code=done.exit_code, reason=done.reason))
    return message


def _weighted_messages(pushes: log.Weighted) -> list[wire.WeightedPush]:
    return [wire.WeightedPush(push=push_name(push), weight=weight) for push, weight in pushes]


def _weighted(messages: Iterable[wire.WeightedPush]) -> log.Weighted:
    return tuple((_push_id(message.push), message.weight) for message in messages)


def _dismiss_message(entry: log.Dismiss) -> wire.Dismiss:
    return wire.Dismiss(
        worker=entry.worker,
        incarnation=entry.incarnation,
        reason=entry.reason,
        detail=entry.detail,
        keep_sequence=entry.keep,
    )


def entry_of(message: wire.Entry) -> log.Entry:
    """The entry that a message carries; ValueError for one that this version does not know."""
    match message.WhichOneof("entry"):
        case "open":
            begin = message.open
            push = _push_id(begin.push) if begin.HasField("push") else None
            return log.Open(push, begin.checkpoint, begin.global_step)
        case "save":
            return log.Save(message.save.folder, message.save.global_step, message.save.patience_ms)
        case "admit":
            return log.Admit(message.admit.worker, message.admit.incarnation)
        case "dismiss":
            gone = message.dismiss
            return log.Dismiss(gone.worker, gone.incarnation, gone.reason, gone.detail, gone.keep_sequence)
        case "apply":
            apply = message.apply
            return log.Apply(apply.global_step, _weighted(apply.pushes), apply.learning_rate, tuple(apply.scales))
        case "reduce":
            return log.Reduce(_weighted(message.reduce.pushes))
        case "answer":
            return _answer(message.answer.worker, message.answer.answer)
        case "pin":
            pin = message.pin
            return log.Pin(pin.snapshot, pin.global_step, pin.keep_ms, pin.averages)
        case "stop":
            return log.Stop(message.stop.global_step, log.Done(message.stop.exit_code, message.stop.reason))
    raise ValueError(f"entry {message.position} of the log is of no known kind")


def push_of(header: worker_wire.PushHeader) -> Push:
    """The header of a push, for the decisions."""
    return Push(
        id=log.PushId(header.id.worker, header.id.incarnation, header.sequence),
        base_step=header.base_step,
        batch=header.batch,
        examples=header.examples,
        values=header.kind == worker_wire.PushHeader.KIND_VALUES,
    )


def saved_part(message: wire.Saved) -> SavedPart:
    """A shard's report of its part of a checkpoint, for the decisions."""
    return SavedPart(
        folder=message.folder, file=message.file, size=message.bytes, sha256=message.sha256, error=message.error
    )


def stated(settings: Message) -> Settings:
    """The settings that a message states."""
    return {field.name: value for field, value in settings.ListFields()}


def signatures(specs: Iterable[ParameterSpec]) -> dict[str, Signature]:
    """Parameters as the decisions know them, by name."""
    return {
        spec.name: Signature(
            spec.name, spec.shape, spec.dtype, spec.trainable, None if spec.table is None else asdict(spec.table)
        )
        for spec in specs
    }


def specs_of_signatures(parameters: Mapping[str, Signature]) -> list[ParameterSpec]:
    """The other way round."""
    return [
        ParameterSpec(
            name=it.name,
            shape=it.shape,
            dtype=it.dtype,
            trainable=it.trainable,
            table=None if it.table is None else TableSpec(**it.table),
        )
        for it in parameters.values()
    ]


def specs_of(job: job_pb2.JobSpec) -> list[ParameterSpec]:
    """The job's parameters; UsageError where one is malformed, a name stands twice, or they are too large."""
    try:
        specs = [from_proto(parameter) for parameter in job.parameters]
    except ValueError as error:
        raise UsageError(str(error)) from error
    if len({spec.name for spec in specs}) < len(specs):
        raise UsageError("two parameters have one name")
    total = sum(map(_least_bytes, specs))
    if total > MAX_JOB_BYTES:
        raise UsageError(f"the model has {total} bytes; a job may have at most {MAX_JOB_BYTES}")
    return specs


def _least_bytes(spec: ParameterSpec) -> int:
    """Bytes of its values; of a lazy table, of which there is what is touched, those that one push may touch."""
    if spec.table is None or not spec.table.lazy:
        return spec.nbytes
    return min(spec.shape[0], spec.table.push_rows) * spec.shape[1] * ITEM_BYTES[spec.dtype]


def _check_texts(message: worker_wire.JoinRequest) -> None:
    """Refuses texts that everybody would be shown, and that are longer than anybody writes."""
    texts = {"name": message.name, "model": message.job.model}
    for settings in (message.stated, message.defaults):
        texts |= {name: value for name, value in stated(settings).items() if isinstance(value, str)}
    for name, text in texts.items():
        if len(text) > MAX_TEXT:
            raise UsageError(f"{name}: a text has at most {MAX_TEXT} characters, not {len(text)}")


def shard_times() -> Stopwatch:
    """What a shard counts and times: the fields of `ShardTimes`."""
    return Stopwatch(("pushes", "updates", "releases"), ("stage", "apply", "encode"))


def times_message(times: Stopwatch) -> wire.ShardTimes:
    """Where a shard's time went."""
    return wire.ShardTimes(**times.totals)


def held_messages(tables: Iterable[TableMemory]) -> list[wire.TableHeld]:
    """The rows of tables that a shard holds."""
    return [wire.TableHeld(name=it.spec.name, rows=it.held, capacity=it.capacity, bytes=it.nbytes) for it in tables]


def join_request(message: worker_wire.JoinRequest) -> JoinRequest:
    """A join, for the decisions; UsageError for one that cannot be meant."""
    if not message.nonce:
        raise UsageError("a join without a nonce could be anybody's")
    _check_texts(message)
    return JoinRequest(
        nonce=message.nonce,
        name=message.name,
        index=message.index if message.HasField("index") else None,
        run=message.run,
        shard_count=message.shard_count,
        model=message.job.model,
        parameters=signatures(specs_of(message.job)),
        stated=stated(message.stated),
        defaults=stated(message.defaults),
    )
