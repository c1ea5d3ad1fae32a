"""Writes the Python code for the .proto files of this folder, or checks that it is up to date.

The compiler is pinned and lives in an environment of its own under build/, because the code that it writes asks
for its own protobuf and grpcio or newer ones: 1.74.0's runs on everything that pyproject.toml allows, while a newer
compiler would shut out TensorFlow's range. Uses the standard library only, so any Python can run it:

    python protos/generate.py            writes the generated files
    python protos/generate.py --check    exit 1 and their names if any is stale, missing or left over
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

TOOLS = "grpcio-tools==1.74.0"
# The name that imports use for this folder, in .proto files and in Python.
PACKAGE = "grpc_ps/protos"
FOLDER = Path(__file__).resolve().parent
GENERATED = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py")


def main() -> int:
    """Runs the command line and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None, allow_abbrev=False)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a generated file is stale")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wanted = _generate(_compiler(FOLDER.parent / "build" / "proto-compiler"), Path(folder))
    present = {path.name: path.read_bytes() for pattern in GENERATED for path in FOLDER.glob(pattern)}
    stale = sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))
    if arguments.check:
        return _report(stale)
    for name in stale:
        _write(FOLDER / name, wanted.get(name))
        print(f"protos: {'wrote' if name in wanted else 'removed'} {name}")
    return 0


def _compiler(folder: Path) -> Path:
    """Returns the Python of the compiler's environment, which is made if it is not there yet."""
    python = folder / "bin" / "python"
    stamp = folder / TOOLS
    if not stamp.exists():
        print(f"protos: installing {TOOLS} into {folder.relative_to(FOLDER.parent)}", file=sys.stderr)
        venv.EnvBuilder(clear=True, with_pip=True).create(folder)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # The compiler imports pkg_resources, which setuptools no longer has from 81 on.
        subprocess.run([*pip, TOOLS, "setuptools<81"], check=True)
        stamp.touch()
    return python


def _generate(python: Path, output: Path) -> dict[str, bytes]:
    """Compiles every .proto file and returns name and content of each generated file."""
    sources = sorted(FOLDER.glob("*.proto"))
    # protoc derives Python's import paths from the path that it is given; -I maps that name to the folder.
    command = [str(python), "-W", "ignore", "-m", "grpc_tools.protoc", f"-I{PACKAGE}={FOLDER}"]
    command += [f"--{kind}_out={output}" for kind in ("python", "pyi", "grpc_python")]
    subprocess.run(command + [f"{PACKAGE}/{source.name}" for source in sources], check=True)
    for source in sources:
        if not _has_service(source):
            (output / PACKAGE / f"{source.stem}_pb2_grpc.py").unlink()
    return {path.name: path.read_bytes() for path in (output / PACKAGE).iterdir()}


def _has_service(source: Path) -> bool:
    return any(line.startswith("service ") for line in source.read_text(encoding="utf-8").splitlines())


def _report(stale: list[str]) -> int:
    if not stale:
        return 0
    print(f"protos: stale: {', '.join(stale)}; run `make proto`", file=sys.stderr)
    return 1


def _write(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)


if __name__ == "__main__":
    sys.exit(main())
