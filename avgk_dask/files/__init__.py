"""Score files of other formats (npy, npz, Parquet, CSV, Arrow) as streams of row blocks. Nothing else imports pyarrow."""

from .labels import open_label_file, open_mask_file, read_numbers
from .matrices import is_row_file, open_file
from .rows import RowFile

__all__ = ["RowFile", "is_row_file", "open_file", "open_label_file", "open_mask_file", "read_numbers"]
