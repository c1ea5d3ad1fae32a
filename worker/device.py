"""Where TensorFlow computes and with how many threads; made before it is used for the first time."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.process import importing_tensorflow, quiet_stderr

_FORM = re.compile(r"(cpu|gpu)(?::(\d{1,2}))?", re.IGNORECASE)


def parse_device(text: str) -> str:
    """TensorFlow's short name, as "CPU:0", of "cpu", "cpu:1" or "gpu:0".

    Raises:
        UsageError: it has another form.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise UsageError(f"--device {text}: must be cpu:N or gpu:N")
    return f"{match[1].upper()}:{int(match[2] or 0)}"


def start_tensorflow(*, threads: int | None, device: str | None) -> None:
    """Imports TensorFlow and starts its runtime, which takes seconds.

    A stated device is kept to: what cannot run there is an error. CPUs beyond the first are logical devices that
    share the cores.

    Raises:
        UsageError: the machine has no such device.
    """
    with importing_tensorflow():
        import tensorflow as tf

    with quiet_stderr():
        if threads is not None:
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(threads)
        # Several workers may share a GPU: TensorFlow would take nearly all of its memory for the first.
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
        if device is not None:
            tf.config.set_soft_device_placement(False)
            _split_cpu(device)
        found = [f"{each.device_type}:{each.name.rpartition(':')[2]}" for each in tf.config.list_logical_devices()]
    if device is not None and device not in found:
        raise UsageError(f"--device {device.lower()}: not here; there are: {', '.join(found).lower()}")


def _split_cpu(device: str) -> None:
    import tensorflow as tf

    kind, _, number = device.partition(":")
    if kind == "CPU" and number != "0":
        parts = [tf.config.LogicalDeviceConfiguration()] * (int(number) + 1)
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)


def placed(device: str | None) -> AbstractContextManager[object]:
    """The context in which models are made and steps traced."""
    import tensorflow as tf

    context: AbstractContextManager[object] = tf.device(f"/device:{device}") if device is not None else nullcontext()
    return context
