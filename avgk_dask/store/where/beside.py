"""What runs make ready beside the place they write to: folders named ``.NAME-avgk-xxxxxxxx``."""

from __future__ import annotations

import pathlib
import re


def folders_beside(target: pathlib.Path) -> list[pathlib.Path]:
    """Return the folders beside a target that are named as those of runs."""
    name = re.compile(rf"\.{re.escape(target.name)}-avgk-[0-9a-f]{{8}}")
    try:
        return [path for path in target.parent.iterdir() if name.fullmatch(path.name) and not path.is_symlink()]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
