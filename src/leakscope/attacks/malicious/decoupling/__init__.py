"""Linear layers in which each class has a way of its own: how they are written, and how a gradient is read there."""
