"""Leases: one writer of a store at a time. What a dead one held is taken over with a warning; a live one's is refused.

A lease is a small JSON object in the draft (``lease_places``): a random owner, its process, since when, and how long it
lasts without renewal. A thread renews it each third of that time, so that a model's loop may be slow.

- The same machine: whether the process still runs decides, however old the lease. A killed writer is resumed at once.
- Another machine: the lease is stale 15 minutes after its last renewal, by the time of the object's last change if
  the store reports it. The clocks of the machines must agree better than that.
- A writer looks before each stored chunk and before it finishes, and stops if another has taken over. On object
  stores a look costs requests, and nobody may take over what was renewed within its time: there it looks once a third
  of the time has passed. A chunk that was on its way meanwhile is noticed by the manifest of the store.

Files and objects are created on condition: exactly one of several writers wins. Other stores (fsspec's file systems that
know no such condition) are read, then written: exact within a process, and nearly so among several.
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
from ..where.addresses import inside
from .lease_places import Found, Place

#: Seconds that a lease lasts without renewal.
LASTS = 900.0
#: A time after all that a lease can hold (the year 5138).
_MOST_TIME = 1e11
#: How often a lease that has just gone is tried again.
_ATTEMPTS = 20
#: Owners of the leases that this process holds.
_HELD: set[str] = set()
_PROC = pathlib.Path("/proc")


def now() -> float:
    """Return the time that leases go by."""
    return time.time()


@dataclass(frozen=True)
class Process:
    """A process, recognised from another one."""

    host: str
    #: Of the system's start, and of what its process numbers are counted in (a container's are its own).
    machine: str
    pid: int
    #: Since the system's start, in its own ticks; empty if unknown.
    started: str

    @classmethod
    def here(cls) -> Process:
        """Return this process."""
        pid = os.getpid()
        return cls(socket.gethostname(), _machine(), pid, _stat(pid)[1])

    def is_running(self) -> bool | None:
        """Whether the process is still there; None if that cannot be known, as of another machine."""
        if os.name != "posix" or (self.host, self.machine) != (socket.gethostname(), _machine()):
            return None
        try:
            os.kill(self.pid, 0)  # no signal, only the question
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:  # of another user
            pass
        state, started = _stat(self.pid)
        # If the system knows: not ended and waited for, and not another one with the same number.
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
    fields = text.rpartition(")")[2].split()  # its name, in brackets, may hold anything
    return fields[0], fields[19]


@dataclass(frozen=True)
class Holder:
    """Who holds a lease."""

    owner: str
    process: Process
    since: float
    renewed: float
    lasts: float
    #: Whether it writes a store at once or not at all: what it leaves is of no use.
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
        """Return the holder; None if the bytes are not one (yet)."""
        try:
            read = json.loads(data)
            process = Process(**read["process"])
            holder = cls(**{**read, "process": process})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        texts = holder.owner, process.host, process.machine, process.started
        times = holder.since, holder.renewed, holder.lasts
        is_sound = (
            all(isinstance(text, str) for text in texts)
            and all(type(moment) in (int, float) and 0 <= moment < _MOST_TIME for moment in times)
            and type(process.pid) is int
            and 0 < process.pid < 1 << 31
        )
        return holder if is_sound else None

    def is_held(self, modified: float | None) -> bool:
        """Whether its lease holds, last changed at a time (None: not known)."""
        running = self.process.is_running()
        if running and self.process.pid == os.getpid():
            return self.owner in _HELD
        if running is not None:
            return running
        return now() - (self.renewed if modified is None else modified) < self.lasts

    def __str__(self) -> str:
        return f"{self.process} since {datetime.fromtimestamp(self.since, UTC).strftime('%Y-%m-%d %H:%M:%S UTC')}"


def _holder(found: Found | None) -> Holder | None:
    return None if found is None else Holder.from_bytes(found.data)


def refuse_held(place: Place, location: str) -> Found | None:
    """Refuse a store that another writes; return the stale lease that is there, if any."""
    found, holder = place.newest(), None
    if found is None:
        return None
    holder = _holder(found)
    if holder is None:  # being created this moment, or damaged
        held = found.modified is not None and now() - found.modified < LASTS
    else:
        held = holder.is_held(found.modified)
    if held:
        raise refusal(location, holder, place.key(found.number))
    return found


def refusal(location: str, holder: Holder | None, key: str) -> StoreError:
    """Return the error that says who is writing since when, and how to break a lease that is wrong."""
    who = "another process" if holder is None else str(holder)
    return StoreError(
        f"{location} is being written by {who}. Wait for it, or write elsewhere; if it is surely gone, remove {key} and "
        "try again."
    )


def tell(text: str) -> None:
    """Warn of what was done about something that an earlier run left."""
    warnings.warn(LeftoverWarning(text), stacklevel=2)


class Lease:
    """The right to write a store, until it is released, forgotten, or the interpreter exits."""

    def __init__(self, place: Place, holder: Holder, location: str, predecessor: Holder | None) -> None:
        self.place, self.holder, self.location = place, holder, location
        #: Whose stale lease was taken over; None if there was none.
        self.predecessor = predecessor
        #: Whether a draft has been begun under it.
        self.has_begun = False
        self._looked = now()
        self._is_over = threading.Event()
        #: So that a lease is not renewed while it is released.
        self._lock = threading.RLock()
        self._release = weakref.finalize(self, _let_go, place, holder, self._is_over, self._lock)
        renewing = weakref.ref(self), self._is_over, holder.lasts / 3  # what is forgotten is not held by its thread
        threading.Thread(target=_renew_on, args=renewing, name="avgk-lease", daemon=True).start()

    @classmethod
    def take(cls, place: Place, location: str, *, whole: bool = False) -> Lease:
        """Take the lease of a store, also one that is stale; refuse it if another holds it."""
        mine = Holder.here(whole)
        _HELD.add(mine.owner)  # before it is seen by other threads
        try:
            for _ in range(_ATTEMPTS):
                stale = refuse_held(place, location)
                place.create(stale.number + 1 if stale else 1, mine.to_bytes())
                found = place.newest()
                if found is not None and found.data == mine.to_bytes():
                    before = _holder(stale)
                    lease = cls(place, mine, location, before)
                    if stale:
                        tell(f"{location} was left by {before or 'a process'}, which is gone; this one takes over")
                    return lease
            raise refusal(location, None, place.key(1))
        except BaseException:
            _HELD.discard(mine.owner)
            raise

    def check(self, *, surely: bool = False) -> None:
        """Stop a writer that has lost its lease; renew it if a third of its time has passed.

        ``surely`` looks also if that costs requests.
        """
        self.refuse_child()
        with self._lock:
            if self._is_over.is_set():
                raise WriteError(
                    f"{self.location} was let go by this writer. Go on with ScoreWriter(..., resume=True)."
                )
            due = now() - self._looked >= self.holder.lasts / 3
            if not (due or surely or self.place.is_near):
                return
            found = self.place.newest()
            holder = _holder(found)
            if found is None or holder is None or holder.owner != self.holder.owner:
                raise WriteError(
                    f"{self.location} was taken over by {holder or 'another process'}; this writer stops. "
                    "Wait for the other, and go on with ScoreWriter(..., resume=True) if that ends early."
                )
            if due:
                self.holder = replace(self.holder, renewed=now())
                self.place.renew(found, self.holder.to_bytes())
                self._looked = now()

    def refuse_child(self) -> None:
        """Stop a forked child, whose rows would be lost or replace those of its parent."""
        if self.holder.process.pid != os.getpid():
            raise WriteError(
                f"{self.location} is being written by {self.holder}, the process that opened this writer; a forked child "
                "cannot go on with it. Open a writer of its own in each process: ScoreWriter(..., part=NUMBER)."
            )

    def release(self) -> None:
        """Let go of the store."""
        self._release()


def _renew_on(known: weakref.ref[Lease], is_over: threading.Event, pause: float) -> None:
    """Renew a lease until it is over; if that fails it is tried again, and the next write reports it."""
    while not is_over.wait(pause):
        lease = known()
        with contextlib.suppress(Exception):
            if lease is not None:
                lease.check()
        del lease


def _let_go(place: Place, holder: Holder, is_over: threading.Event, lock: threading.RLock) -> None:
    """Remove a lease, if it is still this one; not in a forked child, which has only a copy of it."""
    if holder.process.pid != os.getpid():
        return
    with lock:
        is_over.set()
        with contextlib.suppress(Exception):  # it will be found stale: this process lets go of it
            found = _holder(place.newest())
            if found is not None and found.owner == holder.owner:
                place.remove()
        _HELD.discard(holder.owner)


@contextmanager
def holding() -> Iterator[Holder]:
    """Return a holder that is known to be alive for now, without a lease."""
    holder = Holder.here(whole=True)
    _HELD.add(holder.owner)
    try:
        yield holder
    finally:
        _HELD.discard(holder.owner)


class LeasedStore(WrapperStore[Store]):
    """Wraps a store with the lease under which it is written. In other processes, as of a cluster, it is a plain store."""

    def __init__(self, store: Store, lease: Lease, location: str, *, is_lent: bool = False) -> None:
        super().__init__(store)
        #: Whether the lease, and so the run, outlasts the writer.
        self.is_lent = is_lent
        self.lease, self.location = lease, location

    def _with_store(self, store: Store) -> LeasedStore:
        return type(self)(store, self.lease, self.location, is_lent=self.is_lent)

    def with_read_only(self, read_only: bool = False) -> LeasedStore:
        """Return the store in its read-only (or writable) form, under the same lease."""
        return self._with_store(self._store.with_read_only(read_only))

    def __reduce__(self) -> tuple[Callable[[Store], Store], tuple[Store]]:
        return _itself, (self._store,)

    def __str__(self) -> str:
        return self.location

    def lent(self) -> LeasedStore:
        """Return the store for a writer that does not let go of the lease."""
        return type(self)(self._store, self.lease, self.location, is_lent=True)

    def release(self) -> None:
        """Let go of the lease, unless it is lent."""
        if not self.is_lent:
            self.lease.release()


def _itself(store: Store) -> Store:
    return store


def lease_of(store: Store) -> Lease | None:
    """Return the lease under which a store is written; None for one without."""
    inner: Store | None = store
    while inner is not None:
        if isinstance(inner, LeasedStore):
            return inner.lease
        inner = inside(inner)
    return None
