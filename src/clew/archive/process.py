"""Whether the process that looks after a run still lives.

A pid alone is not enough: it is given out again. Its start time is recorded beside it, and so is the boot and pid
namespace that both belong to. Seen from another machine, container or boot, nothing can be said.
"""

import os
from typing import Any


def mark(pid: int) -> dict[str, Any]:
    """What recognises a process later."""
    return {"pid": pid, "began": _began(pid), "within": _within()}


def alive(held: dict[str, Any]) -> bool | None:
    """Whether the marked process lives; None when it cannot be seen from here."""
    pid, began, within = held.get("pid"), held.get("began"), held.get("within")
    if not isinstance(pid, int) or not isinstance(began, str) or not began:
        return None
    if within != _within():
        return None
    return _began(pid) == began


def _began(pid: int) -> str:
    """When a process started, in whatever form the system gives it; "" when it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name stands in parentheses and may itself hold spaces and parentheses.
            fields = file.read().rpartition(b")")[2].split()
        return "" if fields[0] in (b"Z", b"X") else fields[19].decode("ascii")
    except (OSError, IndexError):
        return "" if os.path.isdir("/proc/self") else _from_ps(pid)


def _from_ps(pid: int) -> str:
    import subprocess

    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, check=False)
    except OSError:
        return ""
    state, _, began = done.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else began.strip()


def _within() -> str:
    """A digest that names this boot and pid namespace, and gives away neither host nor user."""
    import hashlib

    parts = []
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            parts.append(file.read().strip())
        parts.append(os.readlink("/proc/self/ns/pid").encode())
    except OSError:
        parts.append(os.uname().nodename.encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
