"""A shard alone, in a process of its own, whose memory and time are nobody else's: `python shard_process.py JSON`.

The JSON object has `presets`, perhaps `limits` and what `ShardConfig` takes; with `apply_seconds` each update takes so
much longer. Prints the line READY as `psserver` does; SIGTERM ends it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

from grpc_ps.client.shared.errors import PsError
from grpc_ps.client.shared.process import prepare_process

SCRIPT = Path(__file__)


def shard_process(**options: Any) -> tuple[str, Path, str]:
    """The arguments of `Command` that start one."""
    return "python", SCRIPT, json.dumps(options)


def slow_down(seconds: float) -> None:
    """Makes every update take longer, in the thread for kernels."""
    from grpc_ps.psserver.updates import Updates

    apply = Updates.apply

    def slow(*arguments: Any) -> Any:
        time.sleep(seconds)
        return apply(*arguments)

    Updates.apply = slow  # type: ignore[method-assign]


async def serve(options: dict[str, Any]) -> None:
    from grpc_ps.psserver.config import ShardConfig
    from grpc_ps.psserver.lead.limits import Limits
    from grpc_ps.psserver.server import ShardServer

    limits = Limits(**options.pop("limits", {}))
    server = ShardServer(ShardConfig(shard=0, limits=limits, **options))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.interrupt)
    await server.start()
    print(f"READY shard=0 address={server.address}", flush=True)
    await server.run()


def main(options: dict[str, Any]) -> int:
    if seconds := options.pop("apply_seconds", 0.0):
        slow_down(seconds)
    try:
        asyncio.run(serve(options))
    except PsError as error:
        print("error:", error, flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    prepare_process()
    sys.exit(main(json.loads(sys.argv[1])))
