"""psctl, the command line of the client: one file a command."""

from __future__ import annotations

import sys
from typing import NoReturn

from grpc_ps.client.shared.process import begin_command


def main() -> NoReturn:
    """Runs psctl with this process's arguments and ends the process."""
    # Before anything loads gRPC, which reads its settings when it is loaded.
    begin_command()
    from grpc_ps.client.commands.group import run
    from grpc_ps.client.shared.main import run_main

    run_main(lambda: run(sys.argv[1:]), "psctl")
