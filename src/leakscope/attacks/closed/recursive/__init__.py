"""The parts of R-GAP: the chain of layers, the start at the output, the way down, and the ranks."""
