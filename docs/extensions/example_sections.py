"""Let the reference pages render a docstring's `Example:` section as code.

Griffe knows `Examples:` only; pydocstyle's google convention, which the code follows, knows both.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_HEADING = re.compile(r"^Example:$", flags=re.MULTILINE)


class ExampleSections(griffe.Extension):
    """Reads `Example:` as `Examples:`."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the heading in the docstring of each loaded object."""
        if obj.docstring is not None:
            obj.docstring.value = _HEADING.sub("Examples:", obj.docstring.value)
