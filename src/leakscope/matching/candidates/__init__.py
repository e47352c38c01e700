"""Axis 2: what is optimised, where it starts, and where it must stay."""
