"""An ssh that goes nowhere: it runs the command here, in a session of its own, as a server at the other end would.

Nothing but the connection, its stdin, ties that command to it: when it is killed, the command lives on.
"""

from __future__ import annotations

SSH = """
import os, subprocess, sys, threading
words = sys.argv[1:]
while words[0].startswith("-"):
    words = words[2 if words[0] == "-o" else 1 :]
host, command = words[0], " ".join(words[1:])
if host == "unreachable":
    print("ssh: connect to host unreachable port 22: Connection refused", file=sys.stderr)
    sys.exit(255)
there = subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, start_new_session=True)

def pass_on():
    while data := os.read(0, 4096):
        there.stdin.write(data)
    there.stdin.close()

threading.Thread(target=pass_on, daemon=True).start()
code = there.wait()
os._exit(code if code >= 0 else 255)
"""
