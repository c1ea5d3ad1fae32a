"""The command `psserver`."""

from __future__ import annotations

import sys

from grpc_ps.client.shared.process import begin_command, own_stderr


def main() -> None:
    """Runs one shard until its job is over, and ends the process."""
    begin_command()
    sys.stderr = own_stderr()
    # Only now: gRPC and the allocator read their settings when they are loaded.
    from grpc_ps.client.shared.main import run_main
    from grpc_ps.psserver.command import psserver

    run_main(lambda: psserver.main(standalone_mode=False), "psserver", at_once=True)


if __name__ == "__main__":
    main()
