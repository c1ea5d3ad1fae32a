"""A light worker as a process of its own, which can be stopped and killed: `python light_process.py JSON`.

The JSON object has `addresses`, and perhaps `names` of scalars (["w"]), `pushes`, `rejoin`, `timeout`, and what
`PSClient.join` takes. With `hold` [N, PATH] it waits at batch N and later ones until there is such a file. Every
gradient is 1. Prints `step N` at each gradient; ends with a line of JSON, or `error: TEXT` and the exit code of that
error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpc_ps.client.shared.process import prepare_process

SCRIPT = Path(__file__)


def light_process(addresses: str, **options: Any) -> tuple[str, Path, str]:
    """The arguments of `Command` that start one."""
    return "python", SCRIPT, json.dumps({"addresses": addresses, **options})


def main(options: dict[str, Any]) -> int:
    """Works as told; returns the exit code."""
    import numpy as np
    from commands import DEADLINE
    from history import wait_for
    from light_worker import run_worker, scalar

    from grpc_ps.client.shared.errors import PsError

    parameters = [scalar(name) for name in options.pop("names", ["w"])]
    first_held, path = options.pop("hold", (None, ""))

    def gradient(worker: int, batch: int, values: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
        print("step", batch, flush=True)
        if first_held is not None and batch >= first_held:
            wait_for(Path(path).exists, path, DEADLINE)
        return {name: np.ones_like(value) for name, value in values.items()}, 1

    try:
        done = run_worker(options.pop("addresses"), parameters, gradient, **options)
    except PsError as error:
        print("error:", error, flush=True)
        return error.exit_code
    values = {name: float(value) for name, value in done.parameters.items()}
    ended = {"lives": done.lives, "worker": done.worker, "outcomes": done.outcomes, "step": done.global_step}
    reply = done.last
    if reply is not None and reply.exit_code:
        print("error:", reply.reason, flush=True)
        return reply.exit_code
    print(json.dumps({**ended, "values": values}), flush=True)
    return 0


if __name__ == "__main__":
    prepare_process()
    sys.exit(main(json.loads(sys.argv[1])))
