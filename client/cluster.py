"""The description of a cluster: its shards' addresses, in order. Commands of both ends parse it the same way."""

from __future__ import annotations

from grpc_ps.client.shared.addresses import parse_addresses

__all__ = ["parse_addresses"]
