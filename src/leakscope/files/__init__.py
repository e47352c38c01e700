"""Reading and writing files of tensors from anyone.

Whatever a file holds, loading it ends in a valid value or in one `BadInputError`: no code of the
file runs, no more memory is taken than its size and the budget allow, nothing partial is returned.
"""

from leakscope.files.atomic import private_folder, write_atomic
from leakscope.files.check import check_update
from leakscope.files.formats import pack_tensors, read_tensors, unpack_tensors, write_tensors
from leakscope.files.images import save_images
from leakscope.files.state_dicts import delta
from leakscope.files.updates import load_state, load_update, save_update

__all__ = [
    "check_update",
    "delta",
    "load_state",
    "load_update",
    "pack_tensors",
    "private_folder",
    "read_tensors",
    "save_images",
    "save_update",
    "unpack_tensors",
    "write_atomic",
    "write_tensors",
]
