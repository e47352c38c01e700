"""Defences, one idea per file. Names are resolved in `leakscope.registry`."""

from leakscope.defences import transforms as transforms  # `leakscope.defences.transforms.apply` is a public name
