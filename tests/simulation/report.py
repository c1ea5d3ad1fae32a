"""What a failure says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulation.world import World


def report(world: World) -> str:
    """How to see a failure again, and what happened last."""
    lines = [f"    {when:10.4f} {_name(action, args)}" for when, _, _, action, args in world.agenda.trace]
    again = f"python -m simulation.run --seed {world.scenario.seed}    (in tests/)"
    return "\n".join([again, f"{world.scenario}", *lines])


def _name(action: Any, args: tuple[Any, ...]) -> str:
    owner = getattr(action, "__self__", None)
    who = f"{type(owner).__name__} {getattr(owner, 'number', getattr(owner, 'incarnation', ''))}" if owner else ""
    return f"{who}.{getattr(action, '__name__', action)} {args!r:.160}"
