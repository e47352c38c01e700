"""Reading a network of convolutions and max pooling backwards, one layer at a time.

A linear layer with a bias tells its input exactly. Below it each block of convolution, activation and max pooling
leaves one discrete unknown per window: which entry was the largest. With it, everything is linear.
"""

from leakscope.attacks.closed.pooling.reading import read_pooled

__all__ = ["read_pooled"]
