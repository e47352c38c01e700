"""Attacks, one paper per file. Names are resolved in `leakscope.registry`."""
