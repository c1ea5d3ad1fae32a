"""Settings of this process that must be made before gRPC or TensorFlow is loaded."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_MMAP_BYTES = 1 << 30
_MAX_INT = (1 << 31) - 1
# What TensorFlow imports of Keras, if it is there.
_KERAS = "keras.src.optimizers"


def begin_command() -> None:
    """Prepares the process of a command, whose first act this is; Ctrl-C ends it at once until `end_of_beginning`.

    What is imported till then would leave a traceback, or take the interruption for a failure of its own.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    prepare_process()


def end_of_beginning() -> None:
    """Lets Ctrl-C raise KeyboardInterrupt again, unless the command has chosen something else."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


def prepare_process() -> None:
    """Tunes memory and gRPC for streams of 1 MiB messages, before either is loaded.

    Measured on two cores with grpcio 1.85 (ARCHITECTURE.md has the table):
      - glibc gives each freed 1 MiB buffer back to the kernel and faults its pages in again for the next one. Keeping
        them took 40 MB each way from 50 to 38 ms, and one 318 KB message each way from 833 to 360 us.
      - gRPC's event engine hands every read and write to another thread; the older poller takes a 318 KB exchange from
        360 to 255 us. gRPC reads the experiment when it is loaded, hence "before".
      - numpy's dot product over several threads costs more in waking them than it gains on blocks of 1 MiB.
      - TensorFlow uses oneDNN by itself only on newer Intel processors. Elsewhere it takes gradients of three layers
        of 2048 for a batch of 10 from 92 to 20 ms on one thread, and those of mnist's layer of 100 stay at 0.6 ms.

    What the environment already sets stays as it is; gRPC's and TensorFlow's own chatter on stderr is off, since a
    command says in one line what is wrong.
    """
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    keep_freed_memory()


@contextmanager
def importing_tensorflow() -> Iterator[None]:
    """Makes importing TensorFlow cheaper, and quiet.

    Its last act is to import Keras if that is installed: a third of six seconds of processor time, for what only Keras
    models need, and these import it themselves. While this lasts, that part of Keras is not to be found. Nor does the
    collector look for garbage among objects that all stay. Where TensorFlow is there already nothing is hidden: another
    thread may import Keras meanwhile, which would fail.
    """
    first = "tensorflow" not in sys.modules
    without = first and _KERAS not in sys.modules
    if without:
        sys.modules[_KERAS] = None  # type: ignore[assignment]  # "There is none", to the import system.
    collecting = first and gc.isenabled()
    if collecting:
        gc.disable()
    try:
        with quiet_stderr():
            yield
    finally:
        if collecting:
            gc.enable()
        if without:
            del sys.modules[_KERAS]


@contextmanager
def quiet_stderr() -> Iterator[None]:
    """Hides what is written to file descriptor 2: TensorFlow's C++ tells whatever its log level that it finds no GPU.

    Other threads' output is hidden too, but for what goes through `own_stderr`: a process that does this beside other
    work makes that its `sys.stderr` first.
    """
    saved = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(nowhere)
        os.close(saved)


def own_stderr() -> TextIO:
    """Opens a second way to this process's stderr, line by line, which `quiet_stderr` does not reach."""
    return os.fdopen(os.dup(2), "w", buffering=1)


def keep_freed_memory() -> bool:
    """Tells glibc to keep freed buffers for reuse. Returns whether that took effect: not on other C libraries."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, _MAX_INT))
