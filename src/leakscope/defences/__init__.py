"""Defences, one idea per file. Names are resolved in `leakscope.registry`."""
