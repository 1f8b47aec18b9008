"""What every score file gives, whatever its format: its shape, and its rows in blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..arrays import Array, Dtype
from ..credentials import environment_secrets, hide
from ..errors import AvgkError, LabelsError, OptionError, ReadError, ScoresError, label_cure, refuse

#: The share of the memory that what is held of a file may take.
_MEMORY_SHARE = 4
#: The scores (rows x classes) of some consecutive rows, and their labels where the file has them.
Block = tuple[Array, Array | None]


@dataclass(frozen=True, kw_only=True)
class RowFile(ABC):
    """A score file, opened but not read: what is known of it, and its rows in blocks.

    ``n_samples`` is None where only reading tells (CSV). ``class_names`` are known where each
    class is a named column; ``ignored`` are the members or columns that are neither scores nor labels.
    """

    location: str
    n_samples: int | None
    n_classes: int
    dtype: Dtype
    has_labels: bool = False
    class_names: list[str] | None = None
    ignored: tuple[str, ...] = ()

    @abstractmethod
    def blocks(self, max_bytes: int) -> Iterator[Block]:
        """Return the rows in file order, once each: scores in C order and native bytes, and their labels.

        A block's scores have at most ``max_bytes`` bytes, or are a single row.

        Raises
        ------
        ReadError
            Where the file is damaged or ends early.
        ScoresError, LabelsError
            Where a row is missing, or of another length than the first.

        """

    def rows_per_block(self, max_bytes: int) -> int:
        """Return how many rows of scores fit into ``max_bytes``, at least one."""
        if max_bytes < 1:
            raise OptionError(f"max_bytes must be positive; got {max_bytes}. Give the bytes a block may have.")
        return max(1, max_bytes // (self.n_classes * self.dtype.itemsize))


@contextmanager
def reading(location: str, *causes: type[Exception]) -> Iterator[None]:
    """Turn what libraries raise on a bad file into one ReadError that names the file and the cause."""
    expected: tuple[type[Exception], ...] = (OSError, *causes)
    try:
        yield
    except AvgkError:
        raise
    except expected as error:
        cause = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
        told = hide(cause, environment_secrets())  # what a stream reads from may be anywhere
        refuse(ReadError(f"{location} could not be read ({told}). Check that the file is complete and may be read."))


def held_limit() -> int:
    """Return the bytes that a file may have of which all is held in memory."""
    from ..settings import setting  # late: it brings Dask along
    from ..threads import process_memory

    return min(int(setting("file-bytes")), process_memory() // _MEMORY_SHARE)


def check_matrix(shape: tuple[int, ...], location: str) -> tuple[int, int]:
    """Return the shape of a score matrix, or refuse one that is not (sample, class)."""
    if len(shape) != 2 or min(shape) < 0:
        raise ScoresError(f"scores must be a matrix (sample, class); {location} has shape {shape}. Reshape it first.")
    if shape[1] == 0:
        raise ScoresError(f"scores must have at least one class; {location} has shape {shape}. Check how it was saved.")
    return shape[0], shape[1]


def check_labels(shape: tuple[int, ...], dtype: Dtype, location: str) -> None:
    """Refuse labels that are neither class numbers (1-D) nor a matrix of probabilities (2-D)."""
    if len(shape) == 1 and dtype.kind in "iu":
        return
    if len(shape) == 2 and dtype.kind in "iufb":
        return
    raise LabelsError(
        f"labels must be integers, one per sample, or a matrix of probabilities; {location} holds {dtype} of shape "
        f"{shape}. {label_cure(dtype) if len(shape) == 1 else 'Convert them first.'}"
    )
