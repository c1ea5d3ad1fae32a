"""An ssh that goes nowhere: it runs the command here, in a session of its own, as a server at the other end would.

Nothing but the connection ties that command to it: when it is killed the command lives on, and what it says is lost.
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
pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
there = subprocess.Popen(["sh", "-c", command], bufsize=0, start_new_session=True, **pipes)

def pass_on(source, target):
    while data := os.read(source, 4096):
        os.write(target.fileno() if target is there.stdin else target, data)
    if target is there.stdin:
        target.close()

back = [(there.stdout.fileno(), 1), (there.stderr.fileno(), 2)]
threads = [threading.Thread(target=pass_on, args=pair, daemon=True) for pair in [*back, (0, there.stdin)]]
for thread in threads:
    thread.start()
code = there.wait()
for thread in threads[:2]:
    thread.join(5)
os._exit(code if code >= 0 else 255)
"""
