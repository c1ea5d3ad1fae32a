"""Process settings come before gRPC; logs are one event a line; both ends agree on keepalive."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
from types import ModuleType

import pytest

from grpc_ps.client.shared import channel_options
from grpc_ps.client.shared.logs import ROOT, event, setup_logging
from grpc_ps.client.shared.process import importing_tensorflow, keep_freed_memory


def run(text: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_process_is_prepared_before_grpc_is_imported() -> None:
    out = run(
        "import sys, os\n"
        "from grpc_ps.client.shared.process import prepare_process\n"
        "prepare_process()\n"
        "print('grpc' in sys.modules, 'numpy' in sys.modules, os.environ['GRPC_EXPERIMENTS'])\n"
        "print(os.environ['GRPC_VERBOSITY'], os.environ['TF_CPP_MIN_LOG_LEVEL'])\n"
    )
    assert out == "False False -event_engine_client,-event_engine_listener\nNONE 3\n"


def test_what_the_environment_sets_is_kept() -> None:
    text = (
        "import os\nfrom grpc_ps.client.shared.process import prepare_process\nprepare_process()\n"
        "print(os.environ['GRPC_EXPERIMENTS'], os.environ['GRPC_VERBOSITY'])\n"
    )
    assert run(text, GRPC_EXPERIMENTS="tcp_rcv_lowat", GRPC_VERBOSITY="DEBUG") == "tcp_rcv_lowat DEBUG\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's")
def test_mallopt_is_called() -> None:
    assert run("from grpc_ps.client.shared.process import keep_freed_memory as k\nprint(k())\n") == "True\n"


def test_other_systems_have_no_mallopt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_freed_memory()


def test_keras_is_hidden_from_the_first_import_of_tensorflow_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that starts later in the same process must not break another thread's import of Keras."""
    for name in ("tensorflow", "keras.src.optimizers"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with importing_tensorflow():
        assert (sys.modules["keras.src.optimizers"], gc.isenabled()) == (None, False)
    monkeypatch.setitem(sys.modules, "tensorflow", ModuleType("tensorflow"))
    with importing_tensorflow():
        assert ("keras.src.optimizers" in sys.modules, gc.isenabled()) == (False, True)
    assert gc.isenabled()


def test_client_names_load_on_use() -> None:
    out = run(
        "import sys, grpc_ps.client as c\n"
        "print('grpc' in sys.modules, c.__all__ == sorted(c.__all__), all(hasattr(c, n) for n in c.__all__))\n"
    )
    assert out == "False True True\n"


def test_b66_server_permits_the_clients_pings() -> None:
    client, server = dict(channel_options.CLIENT_OPTIONS), dict(channel_options.SERVER_OPTIONS)
    permitted = int(server["grpc.http2.min_recv_ping_interval_without_data_ms"])
    assert permitted <= int(client["grpc.keepalive_time_ms"]) // 2
    assert server["grpc.keepalive_permit_without_calls"] == client["grpc.keepalive_permit_without_calls"] == 1
    assert server["grpc.so_reuseport"] == 0


def test_events_are_one_line_of_fields(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging("worker 1")
    logger = logging.getLogger(ROOT)
    event(logger, "joined", worker=1, rate=0.1234567891, why="two words", text="a\nb", empty="")
    event(logger, "hidden", logging.DEBUG, x=1)
    line = capsys.readouterr().err
    assert line[2] == line[5] == ":"
    assert line[8:] == ' worker 1 joined worker=1 rate=0.123457 why="two words" text="a\\nb" empty=""\n'


# Ctrl-C comes while the module of that name is looked for.
INTERRUPTED = """
import importlib, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
importlib.import_module(sys.argv[1]).main()
"""


@pytest.mark.parametrize("module", ["grpc_ps.client.commands", "grpc_ps.psserver.cli", "grpc_ps.worker.cli"])
def test_ctrl_c_while_a_command_is_imported_leaves_no_traceback(module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, module]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_command_that_has_begun_is_told_of_ctrl_c() -> None:
    text = (
        "import os, signal\n"
        "from grpc_ps.client.shared.process import begin_command\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "begin_command()\n"
        "from grpc_ps.client.shared.main import run_main\n"
        "def main():\n"
        "    try: os.kill(os.getpid(), signal.SIGINT)\n"
        "    except KeyboardInterrupt: return 7\n"
        "run_main(main)\n"
    )
    assert subprocess.run([sys.executable, "-c", text], check=False, timeout=60).returncode == 7
