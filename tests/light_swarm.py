"""Many light workers in one process: `python light_swarm.py JSON`.

The JSON object has `addresses`, and how many are `idle` and `active`. Idle ones join and beat, and every other one is
attached and holds a batch; active ones push ones to the scalar "w" without end. Prints `ready` when all have joined,
and errors; it is to be killed.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
from light_worker import scalar

from grpc_ps.client import PSClient
from grpc_ps.client.shared.process import prepare_process

SCRIPT = Path(__file__)


def light_swarm(addresses: str, **options: Any) -> tuple[str, Path, str]:
    """The arguments of `Command` that start one."""
    return "python", SCRIPT, json.dumps({"addresses": addresses, **options})


def push_on(client: PSClient) -> None:
    try:
        assert client.session is not None
        client.session.begin()
        while True:
            assert str(client.push({"w": np.ones((), np.float32)}, 1).outcome) == "APPLIED"
    except BaseException as error:
        print("error:", repr(error), flush=True)


def main(options: dict[str, Any]) -> None:
    clients = []
    for number in range(options["idle"] + options["active"]):
        client = PSClient(options["addresses"], timeout=60.0)
        session = client.join("test", [scalar()])
        if session.opener:
            session.open({"w": np.zeros((), np.float32)})
        if number < options["idle"] and number % 2:
            session.begin()
        clients.append(client)
    for client in clients[options["idle"] :]:
        threading.Thread(target=push_on, args=(client,), daemon=True).start()
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    prepare_process()
    main(json.loads(sys.argv[1]))
