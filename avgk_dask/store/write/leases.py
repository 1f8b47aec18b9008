"""Leases: one writer per store at a time. A dead writer's lease is taken over with a warning; a live one's is refused.

A lease is a small JSON object in the draft (``lease_storage``): a random owner, its process, when it began, and how long it
lasts without renewal. A thread renews it each third of that time, so a model's loop may be slow.

- On the same machine, whether the process still runs decides, however old the lease. A killed writer is resumed at once.
- On another machine, the lease is stale 15 minutes after its last renewal, by the time of the object's last change if
  the store reports it. The machines' clocks must agree better than that.
- A writer checks its lease before each stored chunk and before it finishes, and stops if another has taken over. On object
  stores a check costs requests, and a lease that was renewed in time cannot be taken over, so it is checked only after a
  third of its time. The manifest of the store reveals a chunk that was being written meanwhile.

Files and objects are created conditionally: exactly one of several writers wins. Other stores (file systems of fsspec
without conditional writes) are read, then written: exact within a process, and nearly so among several.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import threading
import time
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from zarr.abc.store import Store
from zarr.storage import WrapperStore

from ...errors import LeftoverWarning, StoreError, WriteError
from ..where.addresses import inner_store
from .lease_storage import LeaseKeys, StoredLease

#: Seconds that a lease lasts without renewal.
LASTS = 900.0
#: Later than any time in a lease (the year 5138).
_MOST_TIME = 1e11
#: Maximum number of attempts to take a lease, if other runs take it between two attempts.
_ATTEMPTS = 20
#: Owners of the leases that this process holds.
_HELD: set[str] = set()
_PROC = pathlib.Path("/proc")


def now() -> float:
    """Return the time."""
    return time.time()


@dataclass(frozen=True)
class Process:
    """A process, as other processes identify it."""

    host: str
    #: Identifies the boot of the system and the namespace of process numbers (containers have their own).
    machine: str
    pid: int
    #: Clock ticks between boot and start of the process; empty if unknown.
    started: str

    @classmethod
    def here(cls) -> Process:
        """Return this process."""
        pid = os.getpid()
        return cls(socket.gethostname(), _machine(), pid, _stat(pid)[1])

    def is_running(self) -> bool | None:
        """Whether the process still runs, or None if that cannot be known, as on another machine."""
        if os.name != "posix" or (self.host, self.machine) != (socket.gethostname(), _machine()):
            return None
        try:
            os.kill(self.pid, 0)  # sends no signal
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:  # the process exists, and belongs to another user
            pass
        state, started = _stat(self.pid)
        # Neither a zombie nor another process with the same number.
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
    """Return the state of a process and when it started; empty if the system does not report it."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return "", ""
    fields = text.rpartition(")")[2].split()  # the name before it, in brackets, may contain spaces
    return fields[0], fields[19]


@dataclass(frozen=True)
class Holder:
    """The holder of a lease."""

    owner: str
    process: Process
    since: float
    renewed: float
    lasts: float
    #: Whether it writes a store in one run that cannot be resumed: an unfinished store of it is useless.
    whole: bool = False

    @classmethod
    def here(cls, whole: bool) -> Holder:
        """Return a new holder: this process, now."""
        return cls(uuid.uuid4().hex, Process.here(), now(), now(), LASTS, whole)

    def to_bytes(self) -> bytes:
        """Return the holder as JSON."""
        return json.dumps(asdict(self), indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Holder | None:
        """Return the holder, or None if the bytes are not (yet) one."""
        try:
            values = json.loads(data)
            process = Process(**values["process"])
            holder = cls(**{**values, "process": process})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        texts = holder.owner, process.host, process.machine, process.started
        times = holder.since, holder.renewed, holder.lasts
        is_valid = (
            all(isinstance(text, str) for text in texts)
            and all(type(moment) in (int, float) and 0 <= moment < _MOST_TIME for moment in times)
            and type(process.pid) is int
            and 0 < process.pid < 1 << 31
        )
        return holder if is_valid else None

    def is_held(self, modified: float | None) -> bool:
        """Whether its lease is valid; ``modified`` is the time of the lease's last change, or None if unknown."""
        running = self.process.is_running()
        if running and self.process.pid == os.getpid():
            return self.owner in _HELD
        if running is not None:
            return running
        return now() - (self.renewed if modified is None else modified) < self.lasts

    def __str__(self) -> str:
        return f"{self.process} since {datetime.fromtimestamp(self.since, UTC).strftime('%Y-%m-%d %H:%M:%S UTC')}"


def _holder_of(lease: StoredLease | None) -> Holder | None:
    return None if lease is None else Holder.from_bytes(lease.data)


def refuse_held(storage: LeaseKeys, location: str) -> StoredLease | None:
    """Refuse a store that another writes; return its stale lease, if any."""
    lease = storage.newest()
    if lease is None:
        return None
    holder = _holder_of(lease)
    if holder is None:  # being created at this moment, or damaged
        is_held = lease.modified is not None and now() - lease.modified < LASTS
    else:
        is_held = holder.is_held(lease.modified)
    if is_held:
        raise held_error(location, holder, storage.key(lease.number))
    return lease


def held_error(location: str, holder: Holder | None, key: str) -> StoreError:
    """Return the error that says who has been writing since when, and how to remove a wrong lease."""
    who = "another process" if holder is None else str(holder)
    return StoreError(
        f"{location} is being written by {who}. Wait for it, or write elsewhere; if that process is certainly gone, remove "
        f"{key} and try again."
    )


def warn_leftover(text: str) -> None:
    """Warn how the remains of an earlier run were handled."""
    warnings.warn(LeftoverWarning(text), stacklevel=2)


class Lease:
    """The right to write a store, until it is released, garbage-collected, or the interpreter exits."""

    def __init__(self, storage: LeaseKeys, holder: Holder, location: str, predecessor: Holder | None) -> None:
        self.storage, self.holder, self.location = storage, holder, location
        #: The holder of the stale lease that was taken over, or None.
        self.predecessor = predecessor
        #: Whether a draft has been begun under it.
        self.has_begun = False
        self._renewed = now()
        self._is_over = threading.Event()
        #: Prevents renewing a lease while it is released.
        self._lock = threading.RLock()
        #: Lets other writers take the lease.
        self.release = weakref.finalize(self, _release, storage, holder, self._is_over, self._lock)
        arguments = (
            weakref.ref(self),
            self._is_over,
            holder.lasts / 3,
        )  # a weak reference: the thread keeps no lease alive
        threading.Thread(target=_keep_renewing, args=arguments, name="avgk-lease", daemon=True).start()

    @classmethod
    def take(cls, storage: LeaseKeys, location: str, *, whole: bool = False) -> Lease:
        """Take the lease of a store, or take over a stale one; refuse if another process holds it."""
        holder = Holder.here(whole)
        _HELD.add(holder.owner)  # before other threads see it
        try:
            for _ in range(_ATTEMPTS):
                stale = refuse_held(storage, location)
                storage.create(stale.number + 1 if stale else 1, holder.to_bytes())
                newest = storage.newest()
                if newest is not None and newest.data == holder.to_bytes():
                    predecessor = _holder_of(stale)
                    lease = cls(storage, holder, location, predecessor)
                    if stale:
                        warn_leftover(
                            f"{predecessor or 'a process'} stopped while writing {location}; this process takes over"
                        )
                    return lease
            raise held_error(location, None, storage.key(1))
        except BaseException:
            _HELD.discard(holder.owner)
            raise

    def check(self, *, always: bool = False) -> None:
        """Stop a writer that has lost its lease; renew it if a third of its time has passed.

        With ``always`` the stored lease is read even if that costs requests.
        """
        self.refuse_child()
        with self._lock:
            if self._is_over.is_set():
                raise WriteError(
                    f"{self.location} was released by this writer. Continue with ScoreWriter(..., resume=True)."
                )
            is_due = now() - self._renewed >= self.holder.lasts / 3
            if not (is_due or always or self.storage.is_local):
                return
            lease = self.storage.newest()
            holder = _holder_of(lease)
            if lease is None or holder is None or holder.owner != self.holder.owner:
                raise WriteError(
                    f"{self.location} was taken over by {holder or 'another process'}; this writer stops. "
                    "Wait for the other one; if it ends early, continue with ScoreWriter(..., resume=True)."
                )
            if is_due:
                self.holder = replace(self.holder, renewed=now())
                self.storage.renew(lease, self.holder.to_bytes())
                self._renewed = now()

    def refuse_child(self) -> None:
        """Stop a forked child, whose rows would be lost or would replace the rows of its parent."""
        if self.holder.process.pid != os.getpid():
            raise WriteError(
                f"{self.location} is being written by {self.holder}, the process that opened this writer; a forked child "
                "cannot use it. Open a writer in each process: ScoreWriter(..., part=NUMBER)."
            )


def _keep_renewing(reference: weakref.ref[Lease], is_over: threading.Event, pause: float) -> None:
    """Renew a lease until it is over. A failure is retried, and the next write reports it."""
    while not is_over.wait(pause):
        lease = reference()
        with contextlib.suppress(Exception):
            if lease is not None:
                lease.check()
        del lease


def _release(storage: LeaseKeys, holder: Holder, is_over: threading.Event, lock: threading.RLock) -> None:
    """Remove a lease if it is still this one; a forked child, which has only a copy, does nothing."""
    if holder.process.pid != os.getpid():
        return
    with lock:
        is_over.set()
        with contextlib.suppress(Exception):  # if it cannot be removed it is stale: this process no longer holds it
            newest = _holder_of(storage.newest())
            if newest is not None and newest.owner == holder.owner:
                storage.remove()
        _HELD.discard(holder.owner)


@contextmanager
def holder_without_lease() -> Iterator[Holder]:
    """Return a holder that counts as alive inside the block."""
    holder = Holder.here(whole=True)
    _HELD.add(holder.owner)
    try:
        yield holder
    finally:
        _HELD.discard(holder.owner)


class LeasedStore(WrapperStore[Store]):
    """A store with the lease under which it is written. Other processes, such as workers, receive the store without it."""

    def __init__(self, store: Store, lease: Lease, location: str, *, is_lent: bool = False) -> None:
        super().__init__(store)
        #: Whether the lease outlasts the writer.
        self.is_lent = is_lent
        self.lease, self.location = lease, location

    def _with_store(self, store: Store) -> LeasedStore:
        return type(self)(store, self.lease, self.location, is_lent=self.is_lent)

    def with_read_only(self, read_only: bool = False) -> LeasedStore:
        """Return the store in its read-only (or writable) form, under the same lease."""
        return self._with_store(self._store.with_read_only(read_only))

    def __reduce__(self) -> tuple[Callable[[Store], Store], tuple[Store]]:
        return _unwrapped, (self._store,)

    def __str__(self) -> str:
        return self.location

    def lent(self) -> LeasedStore:
        """Return the store for a writer that does not release the lease."""
        return type(self)(self._store, self.lease, self.location, is_lent=True)

    def release(self) -> None:
        """Release the lease, unless it is lent."""
        if not self.is_lent:
            self.lease.release()


def _unwrapped(store: Store) -> Store:
    return store


def lease_of(store: Store) -> Lease | None:
    """Return the lease under which a store is written, or None."""
    inner: Store | None = store
    while inner is not None and not isinstance(inner, LeasedStore):
        inner = inner_store(inner)
    return inner.lease if inner is not None else None
