"""The command `worker`."""

from __future__ import annotations

from grpc_ps.client.shared.process import begin_command


def main() -> None:
    """Runs the command and ends the process."""
    begin_command()
    # Only now: gRPC and the allocator read their settings when they are loaded, and Ctrl-C leaves no traceback.
    from grpc_ps.client.shared.main import run_main
    from grpc_ps.worker.command import run
    from grpc_ps.worker.interrupt import Interrupt

    interrupt = Interrupt()
    interrupt.install()
    run_main(lambda: run(interrupt), "worker", at_once=True)
