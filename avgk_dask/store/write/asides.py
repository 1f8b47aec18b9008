"""Folders beside a target, in which a run makes ready what it moves into place at its end.

``.NAME-avgk-xxxxxxxx`` beside NAME holds ``owner``, who made it (a lease's holder); ``new``, what is being written; then
``ready``, whole files to be moved into the folder NAME, or ``old``, the store NAME while the new one takes its place. Where the run
was killed, the next one on NAME finds this: ``ready`` is moved in, ``old`` goes back if nothing is at NAME, the rest is removed.
A folder without the mark of an owner is not one of these, whatever its name; that of a live run is left alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..where.beside import folders_beside
from .lease_places import FOLDER, read_small
from .leases import Holder, Lease, holding, refusal, tell

#: A folder is gone for good if it has not come back after so many pauses of so many seconds.
_CALM, _PAUSE = 4, 0.05
#: ... and is left to the next run after so many.
_MOST_TRIES = 200


class Aside:
    """A folder of this run beside its target."""

    def __init__(self, target: pathlib.Path, holder: Holder) -> None:
        self.target = target
        self.folder = target.with_name(f".{target.name}-avgk-{holder.owner[:8]}")
        self.new, self.ready, self.old = (self.folder / name for name in ("new", "ready", "old"))
        self.folder.mkdir(parents=True)
        self.mark = self.folder / "owner"
        try:
            self.mark.write_bytes(holder.to_bytes())
        except BaseException:
            self.remove()
            raise

    @classmethod
    def under(cls, lease: Lease, target: pathlib.Path) -> Aside:
        """Return a folder beside a target that is leased."""
        aside = cls(target, lease.holder)
        lease.renew_with(aside.mark)
        return aside

    def swap(self) -> None:
        """Put what is new in the place of the target, or leave the target as it is."""
        try:
            os.replace(self.target, self.old)
            os.replace(self.new, self.target)
        except BaseException:
            put_back(self.old, self.target)
            raise

    def move_in(self) -> None:
        """Move all that is new into the target folder: once begun, it is finished, by the next run where this is killed."""
        try:
            os.replace(self.new, self.ready)
            move_in(self.ready, self.target)
        except BaseException:
            if self.ready.exists():
                move_in(self.ready, self.target)
            raise

    def remove(self, *, for_good: bool = False) -> None:
        """Remove the folder; ``for_good`` where a write may still be under way."""
        if for_good:
            remove_for_good(self.new)
        _remove(self.folder)


def _remove(folder: pathlib.Path) -> None:
    """Remove a folder so that, killed on the way, it is still known for what it is, and no part of a store goes back."""
    with contextlib.suppress(OSError):
        os.replace(folder / "old", folder / "gone")
    for name in ("new", "ready", "gone"):
        shutil.rmtree(folder / name, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def written_whole(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Return where to write a file that then takes its place at once; a pipe or device is written itself."""
    if path.exists() and not path.is_file():
        yield path
        return
    target = path.resolve()
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    recover(target, str(path))
    with holding() as holder:
        aside = Aside(target, holder)
        try:
            yield aside.new
            os.replace(aside.new, target)
        finally:
            aside.remove()


def put_back(old: pathlib.Path, target: pathlib.Path) -> bool:
    """Put an old store back, if nothing is in its place; return whether there was need to."""
    if target.exists() or not old.exists():
        return False
    os.replace(old, target)
    return True


def move_in(ready: pathlib.Path, target: pathlib.Path) -> None:
    """Move what is ready into a folder, each over what has its name."""
    target.mkdir(exist_ok=True)
    for path in sorted(ready.iterdir()):
        if (target / path.name).is_dir():
            shutil.rmtree(target / path.name)
        path.replace(target / path.name)


def remove_for_good(root: pathlib.Path) -> None:
    """Remove a folder, again where a write that was under way when this one was interrupted has put back some of it.

    Of a link, or a folder that may not be removed itself, what it holds is removed.
    """
    n_calm = 0
    for _ in range(_MOST_TRIES):
        held = sorted(root.iterdir()) if root.is_symlink() and root.is_dir() else [root]
        for path in held:
            with contextlib.suppress(IsADirectoryError):  # one that was put back this moment
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        time.sleep(_PAUSE)
        n_calm = 0 if root.is_dir() and any(root.iterdir()) else n_calm + 1
        if n_calm == _CALM:
            return


def recover(target: pathlib.Path, location: str) -> None:
    """Finish or undo what killed runs left beside a target, with a word for each.

    Raises
    ------
    StoreError
        Where a run that is still alive is at work there.

    """
    for folder in folders_beside(target):
        with contextlib.suppress(OSError):
            folder.rmdir()  # an empty one, of a run that was killed before it could mark it
    for folder, holder, modified in left_beside(target):
        if holder.is_held(modified):
            raise refusal(location, holder, str(folder))
        done = "removed"
        with contextlib.suppress(FileNotFoundError):  # another run does the same
            shutil.rmtree(folder / "old" / FOLDER, ignore_errors=True)
            if put_back(folder / "old", target):
                done = f"put {target.name} back, which it was about to replace, and removed"
            elif (folder / "ready").is_dir():
                move_in(folder / "ready", target)
                done = "moved in what was ready, and removed"
        _remove(folder)
        tell(f"{done} {folder}, left by {holder}, which is gone")


def left_beside(target: pathlib.Path) -> list[tuple[pathlib.Path, Holder, float]]:
    """Return the folders of runs beside a target, each with its owner and the time of the last sign of life."""
    found = []
    for folder in folders_beside(target):
        mark = folder / "owner"
        with contextlib.suppress(OSError):
            holder = Holder.from_bytes(read_small(mark)[0])
            if holder is not None and folder.name.endswith(holder.owner[:8]):
                found.append((folder, holder, mark.stat().st_mtime))
    return found
