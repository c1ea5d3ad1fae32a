"""What do gradients and parameters in fewer bytes cost in accuracy? mnist in rounds of 2 workers, by several seeds.

Each form is a job of its own from the same seeds: the model's first values and the order of the examples are those of
the float32 run beside it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile

from figures import rounded
from processes import program, run_to_end

from grpc_ps.client.shared.process import prepare_process

FORMS = {
    "float32": "",
    "bfloat16 both ways": "--wire-dtype bfloat16",
    "float16 both ways": "--wire-dtype float16",
    "topk:0.01": "--compress topk:0.01",
    "topk:0.01 in bfloat16": "--compress topk:0.01 --wire-dtype bfloat16",
}


def accuracy(flags: str, seed: int, arguments: argparse.Namespace) -> float:
    """Of the test data, in percent, at the last step."""
    job = f"--model mnist --mode sync --steps {arguments.steps} --seed {seed} --json --ps 1 --workers 2 {flags}"
    data = ["--data-dir", arguments.data_dir] if arguments.data_dir else []
    with tempfile.TemporaryDirectory(prefix="grpc-ps-benchmark-") as logs:
        command = [program("psctl"), "launch", *job.split(), *data, "--log-dir", logs]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{ended.stderr}benchmark: {' '.join(command)} ended with exit code {ended.returncode}")
    return 100 * float(json.loads(ended.stdout)["metrics"]["accuracy"])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=5000, help="rounds of a run")
    parser.add_argument("--seeds", type=int, default=3, help="runs of a form")
    parser.add_argument("--data-dir", help="MNIST's files; without it scikit-learn's digits")
    parser.add_argument("--forms", default=",".join(FORMS), help="which, separated by commas; float32 in any case")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    chosen = ["float32", *(name for name in arguments.forms.split(",") if name != "float32")]
    found: dict[str, list[float]] = {}
    for name in chosen:
        found[name] = [accuracy(FORMS[name], seed, arguments) for seed in range(arguments.seeds)]
        if not arguments.json:
            difference = statistics.median(found[name]) - statistics.median(found["float32"])
            each = ", ".join(f"{value:.2f}" for value in found[name])
            print(f"{name:24} median {statistics.median(found[name]):6.2f} %  {difference:+.2f}  ({each})", flush=True)
    if arguments.json:
        shown = {name: [rounded(value) for value in values] for name, values in found.items()}
        print(json.dumps({"benchmark": "wire_accuracy", "steps": arguments.steps, "accuracy": shown}))


if __name__ == "__main__":
    prepare_process()  # Before anything imports gRPC.
    run_to_end(main)
