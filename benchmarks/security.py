"""What do TLS and tokens cost? The push and pull of push_pull.py with them and without, in turns."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from figures import Spread
from processes import run_to_end
from push_pull import SIZES, TURNS, Side, Size, push_pull, ratios

from grpc_ps.client.shared.process import prepare_process


@contextmanager
def secured(size: Size, shard_count: int) -> Iterator[Side]:
    """A job on shards with certificates and tokens of their own."""
    from grpc_ps.client import certificates
    from grpc_ps.client.shared.security import Security
    from grpc_ps.client.shared.tokens import read_token

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certificates.write_all(folder, ["127.0.0.1"], days=1)
        files = {"--tls-ca": "ca.pem", "--tls-cert": "server.pem", "--tls-key": "server-key.pem"}
        files["--token-file"] = certificates.TOKENS
        flags = [word for flag, file in files.items() for word in (flag, str(folder / file))]
        token = read_token(folder / "admin.token")
        security = Security(ca=(folder / certificates.CA).read_bytes(), token=token)
        with push_pull(size, shard_count, flags, security) as side:
            yield side


def measure(name: str, steps: int | None, shard_count: int) -> dict[str, Any]:
    size = SIZES[name]
    each = max(1, (steps or size.steps) // TURNS)
    with secured(size, shard_count) as tls, push_pull(size, shard_count) as plain:
        for _ in range(TURNS):
            tls.turn(each)
            plain.turn(each)
    both = {"tls": tls.record(), "plain": plain.record(), "ratio": ratios(tls, plain).record()}
    return {"size": name, "bytes": size.nbytes, "steps": each * TURNS, **both}


def row(result: dict[str, Any]) -> str:
    walls = [Spread(**result[side]["wall_ms"]).times() for side in ("tls", "plain")]
    return f"{result['size']:<6} {walls[0]:>22} {walls[1]:>22} {Spread(**result['ratio']).range():>21}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", default=",".join(SIZES), help=f"some of {', '.join(SIZES)}")
    parser.add_argument("--steps", type=int, help="steps of each size; default: more for small ones")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    arguments = parser.parse_args()
    results = [measure(name, arguments.steps, arguments.shards) for name in arguments.sizes.split(",")]
    if arguments.json:
        print(json.dumps({"benchmark": "security", "shards": arguments.shards, "results": results}))
        return
    print(f"{'':6} {'TLS, token: ms':>22} {'plain: ms':>22} {'ratio':>21}")
    for result in results:
        print(row(result))


if __name__ == "__main__":
    prepare_process()  # Before anything imports gRPC.
    run_to_end(main)
