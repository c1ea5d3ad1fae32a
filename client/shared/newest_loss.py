"""The one loss that is said of a job with several workers. Pure; used by both ends of the wire."""

from __future__ import annotations

from collections.abc import Iterable


def newest_loss(told: Iterable[tuple[float | None, int | None]]) -> float | None:
    """Returns the mean loss of the newest applied pushes, None where there is none.

    A gradient that did not count says nothing of the model as it is: that of a worker which came when the job was over
    may be of the first values. Nor does one that counted long ago.

    Args:
        told: of each worker the loss of its last applied push, and the global step that this push made; None before
            the first. Those of the newest step count: in sync that is the last round. Where only one made that step, as
            in async, those of as many of the newest steps count as there are workers with an applied push.
    """
    known = [(step, loss) for loss, step in told if loss is not None and step is not None]
    if not known:
        return None
    newest = max(step for step, _ in known)
    round_of = [loss for step, loss in known if step == newest]
    counted = round_of if len(round_of) > 1 else [loss for step, loss in known if step > newest - len(known)]
    return sum(counted) / len(counted)
