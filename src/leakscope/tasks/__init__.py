"""What a network is for: its loss, what a valid output looks like, how it is decoded, what accuracy means.

A task is a frozen dataclass: it can be compared, changed with `dataclasses.replace` and sent to another process. All
methods take what a network returned as it is: an output with `.logits`, or a mapping with "logits", is unwrapped here.
"""

from __future__ import annotations

from leakscope.tasks.classification import Binary, Classification, is_mean_cross_entropy
from leakscope.tasks.columns import Columns
from leakscope.tasks.next_token import NextToken
from leakscope.tasks.tabular import Tabular
from leakscope.tasks.task import OutputLoss, Task, TaskLoss, check_labels, unwrap
from leakscope.tasks.text import CTCText

__all__ = [
    "Binary",
    "CTCText",
    "Classification",
    "Columns",
    "NextToken",
    "OutputLoss",
    "Tabular",
    "Task",
    "TaskLoss",
    "check_labels",
    "is_mean_cross_entropy",
    "unwrap",
]
