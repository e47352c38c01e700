"""Reading the pickle of a .pt archive as a description, without running it.

A pickle is a program. This is an interpreter for the part of it that describes named tensors:
it knows the opcodes torch.save writes, keeps mentions of functions as names, and refuses every
name outside a short list. Nothing is imported and nothing is called.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from leakscope.files.pickle_symbols import CALLS, STORAGE_CODES, VALUES, Global, Refused, TensorSpec, storage

_MARK = object()
_STOP = ord(".")
# torch.save flushes a container every 1,000 items; only a hostile program stacks more.
_MAX_STACK = 10_000
# Tensors take 2.9 bytes an instruction or more, so the longest pickle that is read needs no more than this;
# twice as many are a program made to keep the reader busy.
_MAX_INSTRUCTIONS = 750_000
_KEYS = (str, int, float, type(None))


class Reader:
    """A stack machine over `data`; `read` returns what the pickle describes."""

    def __init__(self, data: bytes) -> None:
        """Start before the first instruction of `data`."""
        self.data = data
        self.at = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.tensors: list[TensorSpec] = []

    def read(self) -> Any:
        """Return dictionaries, lists, numbers, text and `TensorSpec`s; raise `Refused` otherwise."""
        count = 0
        while (code := self._code()) != _STOP:
            if (count := count + 1) > _MAX_INSTRUCTIONS:
                raise Refused(f"has more than {_MAX_INSTRUCTIONS:,} pickle instructions, which tensors do not need")
            step = _STEPS.get(code)
            if step is None:
                raise Refused(f"uses the pickle instruction 0x{code:02x}, which files of tensors do not need")
            step(self)
            if len(self.stack) > _MAX_STACK:
                raise Refused(f"keeps more than {_MAX_STACK:,} unfinished values")
        if len(self.stack) != 1 or self.stack[0] is _MARK:
            raise Refused("does not describe exactly one object")
        return self.stack[0]

    def _code(self) -> int:
        if self.at >= len(self.data):
            raise Refused("ends in the middle of its pickle")
        self.at += 1
        return self.data[self.at - 1]

    def _take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise Refused("ends in the middle of its pickle")
        self.at += count
        return self.data[self.at - count : self.at]

    def _unpack(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise Refused("takes a value that is not there")
        return self.stack.pop()

    def _pop_mark(self) -> list[Any]:
        items: list[Any] = []
        while self.stack and self.stack[-1] is not _MARK:
            items.append(self.stack.pop())
        if not self.stack:
            raise Refused("takes a value that is not there")
        self.stack.pop()
        return items[::-1]

    def _push_tuple(self, count: int) -> None:
        self.stack.append(tuple([self._pop() for _ in range(count)][::-1]))

    def _line(self) -> str:
        end = self.data.find(b"\n", self.at, self.at + 256)
        if end < 0:
            raise Refused("mentions a name without an end")
        return self._take(end + 1 - self.at)[:-1].decode("utf-8", "replace")

    def _global(self) -> None:
        name = f"{self._line()}.{self._line()}"
        if name not in CALLS and name not in VALUES and name not in STORAGE_CODES:
            raise Refused(f"mentions {name!r}, which is not part of a file of tensors; nothing was run")
        self.stack.append(Global(name))

    def _text(self) -> None:
        self.stack.append(self._take(self._unpack("<I")).decode("utf-8"))

    def _long(self) -> None:
        self.stack.append(int.from_bytes(self._take(self._unpack("<B")), "little", signed=True))

    def _tuple(self) -> None:
        self.stack.append(tuple(self._pop_mark()))

    def _call(self) -> None:
        arguments, function = self._pop(), self._pop()
        if not isinstance(function, Global) or function.name not in CALLS or not isinstance(arguments, tuple):
            raise Refused("calls something that does not rebuild a tensor; nothing was run")
        value = CALLS[function.name](arguments)
        if isinstance(value, TensorSpec):
            self.tensors.append(value)
        self.stack.append(value)

    def _build(self) -> None:
        # state_dict() carries version notes as attributes of its dictionary; they are not needed.
        self._pop()
        if not self.stack or not isinstance(self.stack[-1], dict):
            raise Refused("sets attributes of something that is not a dictionary")

    def _store(self, pairs: list[Any]) -> None:
        if len(pairs) % 2 or not self.stack or not isinstance(self.stack[-1], dict):
            raise Refused("assigns items to something that is not a dictionary")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, _KEYS):
                raise Refused(f"has a dictionary key of type {type(key).__name__}")
            if key in self.stack[-1]:
                raise Refused(f"assigns the key {str(key)[:80]!r} twice")
            self.stack[-1][key] = value

    def _extend(self, items: list[Any]) -> None:
        if not self.stack or not isinstance(self.stack[-1], list):
            raise Refused("appends to something that is not a list")
        self.stack[-1].extend(items)

    def _put(self, slot: int) -> None:
        if not self.stack or self.stack[-1] is _MARK:
            raise Refused("remembers a value that is not there")
        self.memo[slot] = self.stack[-1]

    def _get(self, slot: int) -> None:
        if slot not in self.memo:
            raise Refused("recalls a value it never stored")
        self.stack.append(self.memo[slot])

    def _protocol(self) -> None:
        if (version := self._unpack("<B")) != 2:
            raise Refused(f"is written in pickle protocol {version}, torch.save writes 2; save it without that option")


_STEPS: dict[int, Callable[[Reader], None]] = {
    0x80: Reader._protocol,
    0x88: lambda self: self.stack.append(True),
    0x89: lambda self: self.stack.append(False),
    ord("N"): lambda self: self.stack.append(None),
    ord(")"): lambda self: self.stack.append(()),
    ord("}"): lambda self: self.stack.append({}),
    ord("]"): lambda self: self.stack.append([]),
    ord("("): lambda self: self.stack.append(_MARK),
    ord("J"): lambda self: self.stack.append(self._unpack("<i")),
    ord("K"): lambda self: self.stack.append(self._unpack("<B")),
    ord("M"): lambda self: self.stack.append(self._unpack("<H")),
    ord("G"): lambda self: self.stack.append(self._unpack(">d")),
    0x8A: Reader._long,
    ord("X"): Reader._text,
    0x85: lambda self: self._push_tuple(1),
    0x86: lambda self: self._push_tuple(2),
    0x87: lambda self: self._push_tuple(3),
    ord("t"): Reader._tuple,
    ord("c"): Reader._global,
    ord("R"): Reader._call,
    ord("b"): Reader._build,
    ord("Q"): lambda self: self.stack.append(storage(self._pop())),
    ord("s"): lambda self: self._store([self._pop(), self._pop()][::-1]),
    ord("u"): lambda self: self._store(self._pop_mark()),
    ord("a"): lambda self: self._extend([self._pop()]),
    ord("e"): lambda self: self._extend(self._pop_mark()),
    ord("q"): lambda self: self._put(self._unpack("<B")),
    ord("r"): lambda self: self._put(self._unpack("<I")),
    ord("h"): lambda self: self._get(self._unpack("<B")),
    ord("j"): lambda self: self._get(self._unpack("<I")),
}
