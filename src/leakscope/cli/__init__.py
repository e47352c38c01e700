"""The command line. Nothing here imports torch before a command needs it."""

from leakscope.cli.main import app, main

__all__ = ["app", "main"]
