"""`python -m grpc_ps.psserver`: the command `psserver`."""

from grpc_ps.psserver.cli import main

main()
