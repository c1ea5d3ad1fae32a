"""The library to talk to a cluster: numpy arrays in and out, no TensorFlow.

Names are loaded when they are used: a command has to set up its process (`shared.process`) before gRPC is imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grpc_ps.client.client import ClusterStatus, PSClient, Pulled
    from grpc_ps.client.local_cluster import LocalCluster
    from grpc_ps.client.session import Reply, TrainingSession
    from grpc_ps.client.shared.addresses import parse_addresses
    from grpc_ps.client.shared.blocks import ParameterSpec
    from grpc_ps.client.shared.errors import PsError
    from grpc_ps.client.shared.security import Security

__all__ = [
    "ClusterStatus",
    "LocalCluster",
    "PSClient",
    "ParameterSpec",
    "PsError",
    "Pulled",
    "Reply",
    "Security",
    "TrainingSession",
    "parse_addresses",
]


def __getattr__(name: str) -> Any:
    homes = {
        "ClusterStatus": "client",
        "LocalCluster": "local_cluster",
        "PSClient": "client",
        "Pulled": "client",
        "parse_addresses": "shared.addresses",
        "Reply": "session",
        "TrainingSession": "session",
        "ParameterSpec": "shared.blocks",
        "PsError": "shared.errors",
        "Security": "shared.security",
    }
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{homes[name]}"), name)
