"""Reading ahead: while a part of an array is scanned, the chunks of the next parts are fetched.

All requests run on zarr's event loop: they need no threads, and cancelled ones end at once.

All threads of a process share one budget of bytes (``avgk.ahead-bytes``, at most an eighth of the memory) and of requests. The
number of requests grows while scans wait. Objects of more than 16 MB are fetched in ranges. Reading local files ahead was 20 %
slower: it evicts the current band from the cache.
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
from .checked import CheckedStore, Checks, StoreWrapper, n_ranges
from .grids import grid_of, most_bytes
from .listing import chunk_key
from .manifest import indices_within
from .nodes import with_store

#: Requests that a process may make ahead of its scans: initial, minimum and maximum number.
_FIRST, _LEAST, _MOST = 32, 4, 128
#: A scan that waits for data raises the number by this share; one that does not lowers it by this amount.
_GROWTH, _DECAY = 1 / 4, 1 / 4
#: Seconds between two checks whether the task was cancelled, while it waits for data.
_CHECK_SECONDS = 0.2

#: At most 1 / 8 of the process's memory is read ahead.
AHEAD_SHARE = 8
Box = tuple[slice, ...]
#: Chunks by key.
Chunks = dict[str, Buffer | None]


class Budget:
    """Counts the bytes and requests, pending or complete, that the threads of a process have read ahead."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start from zero."""
        self._lock = threading.Lock()
        self.n_bytes = self.n_requests = 0
        self._readers: Counter[int] = Counter()
        #: Allowed number of requests: it grows while scans wait for data, and shrinks while they do not.
        self.window = float(_FIRST)

    @property
    def n_readers(self) -> int:
        """Number of reading threads."""
        return len(self._readers)

    @contextmanager
    def reader(self, thread: int) -> Iterator[None]:
        """Count a reading thread once, even if it reads several arrays."""
        with self._lock:
            self._readers[thread] += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers[thread] -= 1
                self._readers += Counter()  # drops zeros

    def admit(self, part: Part, pending: Sequence[Part], limit: int) -> bool:
        """Count a part if there is space for it and its reader, with its ``pending`` parts, stays within its share."""
        with self._lock:
            parts = (*pending, part)
            n_bytes, n_requests = sum(p.n_bytes for p in parts), sum(p.n_requests for p in parts)
            fits = self.n_bytes + part.n_bytes <= limit
            is_fair = n_bytes * self.n_readers <= limit and n_requests * self.n_readers <= self.window
            if fits and (is_fair or not pending):
                self._count(part, 1)
                part.is_counted = True
            return part.is_counted

    def release(self, part: Part) -> None:
        """Remove a part that is scanned next or cancelled."""
        with self._lock:
            if part.is_counted:
                self._count(part, -1)
            part.is_counted = False

    def correct(self, part: Part, n_bytes: int) -> None:
        """Replace the estimated bytes of a part by the actual ones."""
        with self._lock:
            self.n_bytes += (n_bytes - part.n_bytes) * part.is_counted
            part.n_bytes = n_bytes

    def adapt(self, *, waited: bool) -> None:
        """Adapt the number of requests to whether a scan had to wait for its data."""
        with self._lock:
            window = self.window * (1 + _GROWTH) if waited else self.window - _DECAY
            self.window = min(max(window, _LEAST), _MOST)

    def _count(self, part: Part, sign: int) -> None:
        self.n_bytes += sign * part.n_bytes
        self.n_requests += sign * part.n_requests


#: The budget of this process. A forked child resets it, as the threads stay in the parent.
BUDGET = Budget()
in_forked_child(BUDGET.reset)


class FetchedStore(StoreWrapper):
    """Returns each fetched chunk once; reads everything else from the inner store."""

    def __init__(self, store: CheckedStore) -> None:
        super().__init__(store)
        self.fetched: dict[str, Buffer | None] = {}

    @property
    def checks(self) -> Checks:
        """The checks of the inner store."""
        assert isinstance(self._store, CheckedStore)
        return self._store.checks

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return a fetched chunk, or read a key."""
        if byte_range is None and key in self.fetched:
            return self.fetched.pop(key)
        return await super().get(key, prototype, byte_range)


class Part:
    """A part of an array and the requests for its chunks."""

    def __init__(self, array: StoredArray, box: Box, most_bytes: int) -> None:
        checks: Checks = array.store_path.store.checks
        self.box = box
        self.keys = [chunk_key(array, index) for index in indices_within(grid_of(array), box)]
        sizes = [digest[0] if (digest := checks.digest(key)) else most_bytes for key in self.keys]
        self.n_bytes, self.n_requests = sum(sizes), sum(map(n_ranges, sizes))
        self.is_counted = False
        self._answer: Future[Chunks] = Future()

    def fetch(self, store: CheckedStore, gate: asyncio.Semaphore, budget: Budget) -> None:
        """Start the requests; the gate limits how many run at a time."""
        self._answer = begin(_get_all(store, self.keys, gate))
        self._answer.add_done_callback(lambda answer: budget.correct(self, _length(answer)))

    @property
    def is_complete(self) -> bool:
        """Whether all requests have been answered."""
        return self._answer.done()

    def wait(self) -> Chunks:
        """Wait for the chunks and return them; raise CancelledError if the task was cancelled."""
        while not is_cancelled() and not self._answer.done():
            with suppress(TimeoutError):
                self._answer.exception(_CHECK_SECONDS)
        if is_cancelled():
            raise CancelledError
        answer, self._answer = self._answer, Future()  # lets go of the bytes
        return answer.result()

    def cancel(self) -> None:
        """Cancel the pending requests."""
        self._answer.cancel()


async def _get_all(store: CheckedStore, keys: Sequence[str], gate: asyncio.Semaphore) -> Chunks:
    """Return the chunks at some keys; if a request fails, cancel the others."""

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
    """Return the number of bytes of an answer, or 0 if it failed."""
    if answer.cancelled() or answer.exception():
        return 0
    return sum(len(value) for value in answer.result().values() if value is not None)


class Prefetcher:
    """The queues through which a reader reads ahead in this process; pickling drops them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: set[Queue] = set()
        self._is_stopped = False

    def stop(self) -> None:
        """Cancel pending requests and start no new ones, after a task has failed or was interrupted."""
        with self._lock:
            self._is_stopped = True
            queues = list(self._queues)
        for queue in queues:
            queue.stop()

    @contextmanager
    def tasks(self) -> Iterator[None]:
        """Allow tasks to read; stop them on an error or an interrupt."""
        self._is_stopped = False
        try:
            yield
        except BaseException:
            self.stop()
            raise

    @contextmanager
    def queue(self, array: StoredArray, boxes: Sequence[Box], limit: int) -> Iterator[Queue]:
        """Yield a queue that fetches boxes of an array in order; cancel its requests at the end."""
        queue = Queue(array, boxes, min(limit, process_memory() // AHEAD_SHARE), BUDGET)
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
        return "reading ahead"  # pending requests change no result

    def __reduce__(self) -> tuple[type[Prefetcher], tuple[()]]:
        return Prefetcher, ()


class Queue:
    """Fetches boxes of an array ahead, for one task."""

    def __init__(self, array: StoredArray, boxes: Sequence[Box], limit: int, budget: Budget) -> None:
        self._array, self._boxes, self._limit, self._budget = array, deque(boxes), limit, budget
        self._most_bytes = most_bytes(array)
        self._store = FetchedStore(array.store_path.store)
        self._fetched_array = with_store(array, self._store)
        self._gate = asyncio.Semaphore(_MOST)
        self._lock = threading.Lock()
        #: The part that is read now, those requested after it, and the first one not requested.
        self._current: Part | None = None
        self._ahead: deque[Part] = deque()
        self._next: Part | None = None
        self._is_stopped = False

    def take(self) -> tuple[StoredArray, Box]:
        """Return the next box, and the array over a store that holds its chunks; request the boxes after it."""
        part = self._advance()
        self._budget.adapt(waited=not part.is_complete)
        self._store.fetched = part.wait()
        return self._fetched_array, part.box

    def _advance(self) -> Part:
        """Return the part that is scanned next; request further parts if the budget allows."""
        with self._lock:
            if self._is_stopped:
                raise CancelledError
            if not self._ahead:
                self._fetch(self._peek())
            self._current = self._ahead.popleft()
            self._budget.release(self._current)
            while (self._boxes or self._next) and self._budget.admit(self._peek(), self._ahead, self._limit):
                self._fetch(self._peek())
            return self._current

    def _peek(self) -> Part:
        """Return the first part that is not yet requested."""
        if self._next is None:
            self._next = Part(self._array, self._boxes.popleft(), self._most_bytes)
        return self._next

    def _fetch(self, part: Part) -> None:
        part.fetch(self._array.store_path.store, self._gate, self._budget)
        self._ahead.append(part)
        self._next = None

    def stop(self) -> None:
        """Cancel all requests; a task that waits for one ends with CancelledError."""
        with self._lock:
            self._is_stopped = True
            for part in (*self._ahead, *([self._current] if self._current else ())):
                part.cancel()
                self._budget.release(part)
            self._ahead.clear()
            self._current = None
