"""One attempt at a time: what is reported for another one is not taken for it."""

from __future__ import annotations

from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.saving import SavedPart, SavePlan, Saving, TrainingState


def test_reports_for_another_folder_are_no_part_of_the_present_attempt() -> None:
    """Neither a part, nor an error, nor a commit; that of its own folder is."""
    saving = Saving(SavePlan(steps=1), Limits(), 2, generation=7)
    attempt = saving.begin(TrainingState(step=3), {}, 0.0)
    assert not saving.report(1, SavedPart(folder="another", file="part"))
    assert not saving.report(1, SavedPart(folder="another", error="no space"))
    assert not saving.finish("another", "", 1.0)
    assert saving.current is attempt
    assert (attempt.parts, saving.committed, saving.error) == ({}, None, "")
    assert not saving.report(1, SavedPart(folder=attempt.folder, file="part"))
    assert list(attempt.parts) == [1]


def test_two_generations_never_write_into_one_folder() -> None:
    one, other = (
        Saving(SavePlan(), Limits(), 2, generation=generation).begin(TrainingState(step=3), {}, 0.0)
        for generation in (7, 8)
    )
    assert one.folder != other.folder
