"""Score files of other formats (npy, npz, Parquet, CSV, Arrow) as streams of row blocks. Nothing else imports pyarrow."""

from .label_files import open_label_file, open_mask_file
from .number_files import read_numbers
from .row_blocks import RowFile
from .row_files import is_row_file, open_file

__all__ = ["RowFile", "is_row_file", "open_file", "open_label_file", "open_mask_file", "read_numbers"]
