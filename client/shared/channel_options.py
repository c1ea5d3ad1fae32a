"""What both ends of a connection agree on."""

from __future__ import annotations

from typing import TypeAlias

# Of `protos/`: rises with a change that one end would misread. A join with another one is refused.
PROTOCOL_VERSION = 1

Options: TypeAlias = tuple[tuple[str, int | str], ...]

# Milliseconds: a ping is sent after so long without a message, and its answer waited for.
KEEPALIVE_MS = 20_000
KEEPALIVE_TIMEOUT_MS = 20_000
# Milliseconds: how often peers may ping. Half the client's period leaves room for late timers. Nobody is cut off for
# more (`max_ping_strikes` 0): a link that goes on is worth more than a few pings.
LEAST_PING_INTERVAL_MS = 10_000

_KEEPALIVE: Options = (
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)

# Message limits stay gRPC's own 4 MiB: a chunk has 1 MiB. grpc.http2.bdp_probe stays on: without it 40 MB take half
# as long again. Whether a proxy is used is for `Security` to say.
CLIENT_OPTIONS: Options = (
    *_KEEPALIVE,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_500),
    # A name may have moved while its shard was away. gRPC's own 30 s would keep it at the old address for so long.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # Two sessions in one process must not share a connection: each stream has its own flow control and its own fate.
    ("grpc.use_local_subchannel_pool", 1),
)

# With port reuse two servers could take one port and share its callers.
SERVER_OPTIONS: Options = (
    *_KEEPALIVE,
    ("grpc.so_reuseport", 0),
    # A worker has a handful at once; without a limit one connection could hold any number of streams open.
    ("grpc.max_concurrent_streams", 100),
    ("grpc.http2.min_ping_interval_without_data_ms", LEAST_PING_INTERVAL_MS),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", LEAST_PING_INTERVAL_MS),
    ("grpc.http2.max_ping_strikes", 0),
)
