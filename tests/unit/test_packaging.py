"""What an installation receives: one top-level name, every module of the tree, and commands that start fast."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("client", "models", "protos", "psserver", "worker")
COMMANDS = ("psctl", "psserver", "worker")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of a copy of the tree: building in place would leave files of the build in it."""
    copy = tmp_path_factory.mktemp("tree")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    subprocess.run([*command, str(copy / "dist"), str(copy)], check=True, env=environment, timeout=100)
    with zipfile.ZipFile(next((copy / "dist").glob("*.whl"))) as archive:
        yield archive


def test_every_file_of_the_tree_is_in_the_wheel_and_nothing_else(wheel):
    def installs(path):
        return "__pycache__" not in path.parts and path.suffix in (".py", ".pyi", ".proto", ".typed")

    wanted = {
        f"grpc_ps/{path.relative_to(ROOT).as_posix()}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if installs(path)
    }
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == wanted


def test_the_one_top_level_name_is_a_namespace(wheel):
    assert {name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" not in name} == {"grpc_ps"}
    assert "grpc_ps/__init__.py" not in wheel.namelist()


def test_the_wheel_has_licence_and_commands(wheel):
    names = {name.partition(".dist-info/")[2]: name for name in wheel.namelist()}
    assert b"Apache License" in wheel.read(names["licenses/LICENSE"])
    scripts = wheel.read(names["entry_points.txt"]).decode()
    assert sorted(line.partition(" = ")[0] for line in scripts.splitlines() if " = " in line) == list(COMMANDS)


def test_b26_generated_code_fits_the_declared_protobuf():
    """B26: the code asks for no newer protobuf than the lowest that the distribution accepts."""
    requirements = importlib.metadata.requires("grpc-ps")
    assert {"protobuf<8,>=6.31.1", "grpcio>=1.74"} <= set(requirements)
    for path in (ROOT / "protos").glob("*_pb2.py"):
        assert "# Protobuf Python Version: 6.31.1\n" in path.read_text(encoding="utf-8"), path.name
    for path in (ROOT / "protos").glob("*_pb2_grpc.py"):
        assert "GRPC_GENERATED_VERSION = '1.74.0'\n" in path.read_text(encoding="utf-8"), path.name


@pytest.mark.parametrize("command", COMMANDS)
def test_b26_help_needs_no_tensorflow(command):
    """B26: usage is answered from the declared dependencies alone, and at once, so TensorFlow is not imported."""
    code = (
        "import importlib.metadata, sys\n"
        f"[script] = importlib.metadata.entry_points(group='console_scripts', name={command!r})\n"
        f"sys.argv = [{command!r}, '--help']\n"
        "try:\n    script.load()()\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: {command} ")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_is_installed(command):
    script = Path(sys.executable).with_name(command)
    done = subprocess.run([script, "--no-such-flag"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == f"{command}: error: unknown option --no-such-flag\n"


def test_the_version_is_the_distributions():
    script = Path(sys.executable).with_name("psctl")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"grpc-ps {importlib.metadata.version('grpc-ps')}\n"
