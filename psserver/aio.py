"""What grpc.aio has and its type stubs lack."""

from __future__ import annotations

from typing import Any

import grpc.aio

EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]
"""What `read` returns when the other side has ended its stream."""
