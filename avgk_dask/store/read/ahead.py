"""Reading ahead: while a part of an array is scanned, the chunks of the next ones are on their way.

All requests run on zarr's event loop: no threads are started for them, and what is cancelled ends at once.

All threads of a process share one budget of bytes (``avgk.ahead-bytes``, at most an eighth of the memory) and of
requests, which grows while scans wait. Objects of more than 16 MB come in ranges. Reading local files ahead was 20 %
slower: it evicts the band being worked on from the cache.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress

from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest

from ...threads import in_forked_child, is_cancelled, process_memory
from ..where.addresses import StoredArray, begin, get
from .checked import CheckedStore, Checks, Wrapping, n_ranges
from .grids import grid_of, most_bytes
from .listing import chunk_key
from .manifest import indices_within
from .nodes import through

#: Requests that a process has ahead of its scans: to begin with, at the least and at the most.
_FIRST, _LEAST, _MOST = 32, 4, 128
#: What a wait for data adds to them, as a share, and what data that was there in time takes off.
_GROWTH, _DECAY = 1 / 4, 1 / 4
#: Seconds between two looks at whether the task is still wanted, while its data are waited for.
_LOOK = 0.2

#: The share of the process's memory that may be read ahead, as one part in this many.
AHEAD_SHARE = 8
#: A part of an array, and chunks by their keys.
Where = tuple[slice, ...]
Chunks = dict[str, Buffer | None]


class Budget:
    """What the threads of a process together have read ahead of their scans: bytes and requests, under way or there."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Count nothing, as at first."""
        self._lock = threading.Lock()
        self.n_bytes = self.n_requests = 0
        self._readers: Counter[int] = Counter()
        #: Requests that there may be: more while scans have to wait for data, fewer while they do not.
        self.window = float(_FIRST)

    @property
    def n_readers(self) -> int:
        """Number of threads that read."""
        return len(self._readers)

    @contextmanager
    def reader(self, thread: int) -> Iterator[None]:
        """Count a thread that reads, one array or several."""
        with self._lock:
            self._readers[thread] += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers[thread] -= 1
                self._readers += Counter()  # without those that read nothing

    def admit(self, part: Part, mine: Sequence[Part], limit: int) -> bool:
        """Count a part if there is space for it, and one reader does not take what belongs to the others."""
        with self._lock:
            n_bytes, n_requests = (sum(getattr(p, name) for p in (*mine, part)) for name in ("n_bytes", "n_requests"))
            fits = self.n_bytes + part.n_bytes <= limit
            fair = n_bytes * self.n_readers <= limit and n_requests * self.n_readers <= self.window
            if fits and (fair or not mine):
                self._count(part, 1)
                part.is_counted = True
            return part.is_counted

    def leave(self, part: Part) -> None:
        """Count a part no longer: it is scanned next, or given up."""
        with self._lock:
            if part.is_counted:
                self._count(part, -1)
            part.is_counted = False

    def correct(self, part: Part, n_bytes: int) -> None:
        """Count the bytes that a part has instead of those that it can have."""
        with self._lock:
            self.n_bytes += (n_bytes - part.n_bytes) * part.is_counted
            part.n_bytes = n_bytes

    def adapt(self, *, waited: bool) -> None:
        """Learn from whether a scan had to wait for its data."""
        with self._lock:
            wanted = self.window * (1 + _GROWTH) if waited else self.window - _DECAY
            self.window = min(max(wanted, _LEAST), _MOST)

    def _count(self, part: Part, sign: int) -> None:
        self.n_bytes += sign * part.n_bytes
        self.n_requests += sign * part.n_requests


#: That of this process. A forked child has none of the threads that it counts.
BUDGET = Budget()
in_forked_child(BUDGET.reset)


class FetchedStore(Wrapping):
    """Gives the chunks that were fetched, each once; all else is read from the store inside."""

    def __init__(self, store: CheckedStore) -> None:
        super().__init__(store)
        self.fetched: dict[str, Buffer | None] = {}

    @property
    def checks(self) -> Checks:
        """How its reads are checked."""
        assert isinstance(self._store, CheckedStore)
        return self._store.checks

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Give a chunk that was fetched, or read a key."""
        if byte_range is None and key in self.fetched:
            return self.fetched.pop(key)
        return await super().get(key, prototype, byte_range)


class Part:
    """A part of an array and the requests for its chunks."""

    def __init__(self, array: StoredArray, where: Where, most: int) -> None:
        checks: Checks = array.store_path.store.checks
        self.where = where
        self.keys = [chunk_key(array, index) for index in indices_within(grid_of(array), where)]
        sizes = [digest[0] if (digest := checks.digest(key)) else most for key in self.keys]
        self.n_bytes, self.n_requests = sum(sizes), sum(map(n_ranges, sizes))
        self.is_counted = False
        self._answer: Future[Chunks] = Future()

    def fetch(self, store: CheckedStore, gate: asyncio.Semaphore, budget: Budget) -> None:
        """Begin the requests, as many at a time as the gate lets through."""
        self._answer = begin(_get_all(store, self.keys, gate))
        self._answer.add_done_callback(lambda answer: budget.correct(self, _length(answer)))

    @property
    def is_there(self) -> bool:
        """Whether all requests have been answered."""
        return self._answer.done()

    def wait(self) -> Chunks:
        """Return the chunks once they have come; end with CancelledError where the task is no longer wanted."""
        while not is_cancelled() and not self._answer.done():
            with suppress(TimeoutError):
                self._answer.exception(_LOOK)
        if is_cancelled():
            raise CancelledError
        answer, self._answer = self._answer, Future()  # the bytes are not held here any longer
        return answer.result()

    def cancel(self) -> None:
        """Give up what is under way."""
        self._answer.cancel()


async def _get_all(store: CheckedStore, keys: Sequence[str], gate: asyncio.Semaphore) -> Chunks:
    """Return the chunks at some keys; where one fails, those for the others end as well."""

    async def get_one(key: str) -> Buffer | None:
        async with gate:
            return await get(store, key)

    tasks = [asyncio.ensure_future(get_one(key)) for key in keys]
    try:
        return dict(zip(keys, await asyncio.gather(*tasks), strict=True))
    finally:
        for task in tasks:
            task.cancel()


def _length(answer: Future[Chunks]) -> int:
    """Return the bytes of an answer; 0 where none came."""
    if answer.cancelled() or answer.exception():
        return 0
    return sum(len(value) for value in answer.result().values() if value is not None)


class Ahead:
    """Those who read ahead of their scans in this process, through one reader; it travels to others empty."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: set[Queue] = set()
        self._is_stopped = False

    def stop(self) -> None:
        """Cancel what is under way, and let nothing new begin: a task has failed, or all were interrupted."""
        with self._lock:
            self._is_stopped = True
            queues = list(self._queues)
        for queue in queues:
            queue.stop()

    @contextmanager
    def tasks(self) -> Iterator[None]:
        """Let tasks read; stop those of this process on an error or an interrupt."""
        self._is_stopped = False
        try:
            yield
        except BaseException:
            self.stop()
            raise

    @contextmanager
    def queue(self, array: StoredArray, parts: Sequence[Where], limit: int) -> Iterator[Queue]:
        """Lend what fetches the parts of an array ahead, in their order; at the end nothing is under way."""
        queue = Queue(array, parts, min(limit, process_memory() // AHEAD_SHARE), BUDGET)
        with BUDGET.reader(threading.get_ident()):
            with self._lock:
                self._queues.add(queue)
                if self._is_stopped:
                    queue.stop()
            try:
                yield queue
            finally:
                queue.stop()
                with self._lock:
                    self._queues.remove(queue)

    def __dask_tokenize__(self) -> str:
        return "reading ahead"  # what is under way changes nothing

    def __reduce__(self) -> tuple[type[Ahead], tuple[()]]:
        return Ahead, ()


class Queue:
    """Fetches the parts of an array ahead, for one task."""

    def __init__(self, array: StoredArray, parts: Sequence[Where], limit: int, budget: Budget) -> None:
        self._array, self._left, self._limit, self._budget = array, deque(parts), limit, budget
        self._most = most_bytes(array)
        self._store = FetchedStore(array.store_path.store)
        self._over = through(array, self._store)
        self._gate = asyncio.Semaphore(_MOST)
        self._lock = threading.Lock()
        #: The part that is waited for, those after it that are under way or there, and the first that is not.
        self._current: Part | None = None
        self._ahead: deque[Part] = deque()
        self._later: Part | None = None
        self._is_stopped = False

    def take(self) -> tuple[StoredArray, Where]:
        """Return the next part of the array, over a store that holds its chunks; the next ones are on their way."""
        part = self._step()
        self._budget.adapt(waited=not part.is_there)
        self._store.fetched = part.wait()
        return self._over, part.where

    def _step(self) -> Part:
        """Return the part that is scanned next; begin those that may come after it."""
        with self._lock:
            if self._is_stopped:
                raise CancelledError
            if not self._ahead:
                self._fetch(self._upcoming())
            self._current = self._ahead.popleft()
            self._budget.leave(self._current)
            while (self._left or self._later) and self._budget.admit(self._upcoming(), self._ahead, self._limit):
                self._fetch(self._upcoming())
            return self._current

    def _upcoming(self) -> Part:
        """Return the first part that is not yet fetched."""
        if self._later is None:
            self._later = Part(self._array, self._left.popleft(), self._most)
        return self._later

    def _fetch(self, part: Part) -> None:
        part.fetch(self._array.store_path.store, self._gate, self._budget)
        self._ahead.append(part)
        self._later = None

    def stop(self) -> None:
        """Cancel all that is under way; a task that waits for it ends with CancelledError."""
        with self._lock:
            self._is_stopped = True
            for part in (*self._ahead, *([self._current] if self._current else ())):
                part.cancel()
                self._budget.leave(part)
            self._ahead.clear()
            self._current = None
