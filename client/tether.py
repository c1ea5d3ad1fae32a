"""Runs a command that must not outlive the process that started it: `python tether.py PARENT_PID COMMAND...`.

On Linux the kernel kills the command when its parent is gone, even after a `kill -9`; elsewhere the command just runs.
The setting survives exec, so the command keeps this process's id. Doing it here and not between fork and exec in the
parent is what makes it safe beside the parent's threads. Runs as a script of its own, on the standard library alone.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Becomes the command; exits 127 if it cannot be run and 137 if the parent is gone already."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:
            sys.exit(128 + signal.SIGKILL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.exit(127)


if __name__ == "__main__":
    main()
