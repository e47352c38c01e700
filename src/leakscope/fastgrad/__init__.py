"""The matching gradient without a second-order graph: a small compiler of networks.

`compile_network` reads a network once (`trace`), finds a hand-derived rule for each of its layers
(`compile`) and returns a `Program` (`program`) that computes the shared gradients and pulls a
direction in them back to the inputs (`second_pass`); a `LocalProgram` does so through the steps of local training
(`local_steps`), a `TailProgram` where only the last layers are compared (`tail`). The rules stand in `linear`,
`convolution`, `winograd`, `activations`, `pooling`, `connections` and `losses`. A network with a part that has no
rule raises `Unsupported`.
"""

from __future__ import annotations

from leakscope.fastgrad.compile import compile_network, compile_tail
from leakscope.fastgrad.local_steps import LocalProgram
from leakscope.fastgrad.program import FirstPass, Program
from leakscope.fastgrad.tail import TailProgram
from leakscope.fastgrad.trace import Unsupported

__all__ = ["FirstPass", "LocalProgram", "Program", "TailProgram", "Unsupported", "compile_network", "compile_tail"]
