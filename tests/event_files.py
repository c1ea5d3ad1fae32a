"""Reads summaries back: as TensorBoard shows them, and every record of the files one by one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator as OfScripts
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.backend.event_processing.plugin_event_accumulator import TENSORS, EventAccumulator
from tensorboard.util import tensor_util


def accumulator(folder: Path) -> EventAccumulator:
    """The reader of TensorBoard's server, of one run folder, which keeps everything; `Reload` reads on."""
    return EventAccumulator(str(folder), size_guidance={TENSORS: 0})


def shown(reader: EventAccumulator | OfScripts) -> dict[str, list[int]]:
    """Steps by tag, as TensorBoard shows them."""
    reader.Reload()
    return {tag: [event.step for event in reader.Tensors(tag)] for tag in reader.Tags()["tensors"]}


def values(folder: Path, tag: str) -> dict[int, float]:
    """A scalar by step, as TensorBoard shows it."""
    reader = accumulator(folder)
    reader.Reload()
    return {event.step: float(tensor_util.make_ndarray(event.tensor_proto)) for event in reader.Tensors(tag)}


def times(folder: Path, tag: str) -> dict[int, float]:
    """When a value was, in seconds since 1970, by step."""
    reader = accumulator(folder)
    reader.Reload()
    return {event.step: event.wall_time for event in reader.Tensors(tag)}


def rows(folder: Path, tag: str) -> dict[int, list[list[float]]]:
    """A histogram's rows of left end, right end and count by step."""
    reader = accumulator(folder)
    reader.Reload()
    return {event.step: tensor_util.make_ndarray(event.tensor_proto).tolist() for event in reader.Tensors(tag)}


def files(folder: Path) -> list[Path]:
    """The event files in the order in which TensorBoard reads them."""
    return sorted(folder.glob("*tfevents*"))


def recorded(folder: Path) -> dict[str, list[int]]:
    """Steps by tag, of every record that is in the files."""
    steps: dict[str, list[int]] = {}
    for path in files(folder):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                steps.setdefault(value.tag, []).append(event.step)
    return steps


def check_rising(steps: Mapping[str, list[int]]) -> None:
    """Every step is there once, and they rise."""
    for tag, found in steps.items():
        assert found == sorted(set(found)), f"{tag}: {found}"


def check_whole(logdir: Path) -> dict[str, dict[str, list[int]]]:
    """Checks all run folders, read either way; returns the steps that each has of each tag."""
    whole = {}
    for folder in sorted({path.parent for path in logdir.rglob("*tfevents*")}):
        steps = recorded(folder)
        check_rising(steps)
        assert shown(accumulator(folder)) == steps
        # The one that people use in scripts heeds no marks of restarts.
        assert shown(OfScripts(str(folder), size_guidance={TENSORS: 0})) == steps
        whole[folder.relative_to(logdir).as_posix()] = steps
    return whole
