"""The lead's refusals as errors of the tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from grpc_ps.client.shared.errors import PsError, error_classes
from grpc_ps.psserver.lead.refusal import Refusal

T = TypeVar("T")


def error_of(refusal: Refusal) -> PsError:
    """The error of the tree that a refusal names."""
    return error_classes()[refusal.reason](refusal.detail)


def decided(decision: Callable[[], T]) -> T:
    """Takes a decision; refusals come out as errors of the tree."""
    try:
        return decision()
    except Refusal as refusal:
        raise error_of(refusal) from refusal
