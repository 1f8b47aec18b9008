"""Processes: who is at work, and whether it still is."""

from __future__ import annotations

import os
import pathlib
import socket
from dataclasses import dataclass

_PROC = pathlib.Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process, known again from another one."""

    host: str
    #: Of the system's start, and of what its process numbers are counted in (a container's are its own).
    machine: str
    pid: int
    #: Since the system's start, in its own ticks; empty where that is not told.
    started: str

    @classmethod
    def here(cls) -> Process:
        """Return this process."""
        pid = os.getpid()
        return cls(socket.gethostname(), _machine(), pid, _stat(pid)[1])

    def is_running(self) -> bool | None:
        """Whether the process is still there; None where it cannot be told, as of another machine."""
        if os.name != "posix" or (self.host, self.machine) != (socket.gethostname(), _machine()):
            return None
        try:
            os.kill(self.pid, 0)  # no signal, only the question
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:  # of another user
            pass
        state, started = _stat(self.pid)
        # Where the system tells: not ended and waited for, and not another one with the same number.
        return not state or (state not in ("Z", "X") and started == self.started)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _machine() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink(_PROC / 'self/ns/pid')}"
    except OSError:  # not Linux
        return ""


def _stat(pid: int) -> tuple[str, str]:
    """Return the state of a process and when it started; empty where the system does not tell."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return "", ""
    fields = text.rpartition(")")[2].split()  # its name, in brackets, may hold anything
    return fields[0], fields[19]
