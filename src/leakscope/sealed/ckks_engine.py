"""CKKS on tenseal's binding of SEAL: the sole importer of tenseal, and the process that reads others' ciphertexts.

Imported, it makes keys and seals. Started by file name with one JSON argument, it adds up or opens ciphertexts that
came from elsewhere: input and output are inherited descriptors, memory, time and output are limited before the first
byte of the input is looked at. It imports nothing of leakscope.

Two values share one complex slot, so that a ciphertext holds as many values as the ring has dimensions. Adding and
multiplying with whole numbers is all that is done to ciphertexts: there is no rescaling, and no key but the public one.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

DEGREE = 8192
# The last prime is SEAL's own, for keys and fresh ciphertexts; the other two hold the values. 180 of the 218 bits that
# are 128-bit secure at this degree.
PRIME_BITS = (60, 60, 60)
# Chosen so that flooding (leakscope.sealed.flooding) is far below what a float32 resolves.
SCALE_BITS = 80
# Of bound × pieces: what is left of the modulus for the size of a sum, with a factor √2 of a complex slot and a sign.
HEADROOM_BITS = 2 * 60 - SCALE_BITS - 4
# SEAL writes two polynomials of two primes, less what it can compress.
MOST_BLOCK_BYTES = 2 * 2 * 8 * DEGREE + 4096
REFUSED = 3
_FORBIDDEN = ("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "ctypes.")


class UnnamedFile:
    """A file without a name: SEAL's binding reads and writes paths only, and secrets must not touch a folder."""

    def __init__(self) -> None:
        # In memory where the system has that.
        self.descriptor = os.memfd_create("seal") if sys.platform == "linux" else _unnamed_file()
        self.path = f"/dev/fd/{self.descriptor}"
        self._close = weakref.finalize(self, os.close, self.descriptor)

    def __enter__(self) -> UnnamedFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def write(self, content: bytes) -> str:
        """Put `content` into the file; returns its path."""
        os.ftruncate(self.descriptor, 0)
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(self.descriptor, rest) :]
        return self.path

    def read(self) -> bytes:
        """What was written to the path."""
        size, found = os.fstat(self.descriptor).st_size, bytearray()
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        while len(found) < size and (piece := os.read(self.descriptor, size - len(found))):
            found += piece
        return bytes(found)


def _unnamed_file() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Engine:
    """SEAL with the one set of parameters that is used here."""

    def __init__(self) -> None:
        from tenseal import sealapi

        parameters = sealapi.EncryptionParameters(sealapi.SCHEME_TYPE.CKKS)
        parameters.set_poly_modulus_degree(DEGREE)
        parameters.set_coeff_modulus(sealapi.CoeffModulus.Create(DEGREE, list(PRIME_BITS)))
        # SEAL refuses the parameters itself where they are below 128-bit security.
        self.context = sealapi.SEALContext(parameters, True, sealapi.SEC_LEVEL_TYPE.TC128)
        self.seal, self.encoder, self.scratch = sealapi, sealapi.CKKSEncoder(self.context), UnnamedFile()

    def make_keys(self) -> tuple[bytes, bytes]:
        """A public and a secret key from the system's randomness."""
        maker, public = self.seal.KeyGenerator(self.context), self.seal.PublicKey()
        maker.create_public_key(public)
        public.save(self.scratch.path)
        written = self.scratch.read()
        maker.secret_key().save(self.scratch.path)
        secret = self.scratch.read()
        self.scratch.write(b"")
        return written, secret

    def encrypt(self, public: bytes, values: NDArray[np.float64]) -> bytes:
        """Ciphertexts of DEGREE values each, every one behind its length."""
        key = self.seal.PublicKey()
        key.load(self.context, self.scratch.write(public))
        encryptor = self.seal.Encryptor(self.context, key)
        found = bytearray()
        for start in range(0, len(values), DEGREE):
            plain, hidden = self.seal.Plaintext(), self.seal.Ciphertext()
            self.encoder.encode(_as_slots(values[start : start + DEGREE]), 2.0**SCALE_BITS, plain)
            encryptor.encrypt(plain, hidden)
            found += self.save(hidden)
        return bytes(found)

    def add(self, payloads: Sequence[bytes], numbers: Sequence[int]) -> bytes:
        """Ciphertexts of Σ kᵢ xᵢ, block by block."""
        evaluator, found = self.seal.Evaluator(self.context), bytearray()
        for blocks in zip(*(split_blocks(payload) for payload in payloads), strict=True):
            total = None
            for place, (block, number) in enumerate(zip(blocks, numbers, strict=True)):
                if number == 0:
                    continue
                hidden = self.load(block, place)
                if number > 1:
                    factor = self.seal.Plaintext()
                    # At scale 1 a whole number is itself: the product keeps the scale and is exact.
                    self.encoder.encode(float(number), 1.0, factor)
                    evaluator.multiply_plain_inplace(hidden, factor)
                if total is None:
                    total = hidden
                else:
                    evaluator.add_inplace(total, hidden)
            found += self.save(total)
        return bytes(found)

    def decrypt(self, secret: bytes, payload: bytes) -> NDArray[np.float64]:
        """The values as they are, with the noise that gives the key away: for `leakscope.sealed.flooding` only."""
        key = self.seal.SecretKey()
        key.load(self.context, self.scratch.write(secret))
        self.scratch.write(b"")
        decryptor, rows = self.seal.Decryptor(self.context, key), []
        for block in split_blocks(payload):
            plain = self.seal.Plaintext()
            decryptor.decrypt(self.load(block, 0), plain)
            slots = np.asarray(self.encoder.decode_complex(plain), np.complex128)
            rows.append(np.concatenate([slots.real, slots.imag]))
        return np.concatenate(rows)

    def save(self, hidden: Any) -> bytes:
        """One ciphertext behind its length."""
        hidden.save(self.scratch.path)
        content = self.scratch.read()
        return struct.pack("<I", len(content)) + content

    def load(self, block: bytes, place: int) -> Any:
        """One ciphertext of two polynomials at the scale and the modulus that all have here."""
        hidden = self.seal.Ciphertext()
        try:
            hidden.load(self.context, self.scratch.write(block))
        except (RuntimeError, ValueError, TypeError) as error:
            raise ValueError(f"{place} SEAL refuses a ciphertext ({error})") from error
        usual = (hidden.size(), hidden.coeff_modulus_size(), hidden.scale, hidden.is_ntt_form())
        if usual != (2, len(PRIME_BITS) - 1, 2.0**SCALE_BITS, True) or hidden.is_transparent():
            raise ValueError(f"{place} a ciphertext has other parameters than those agreed on, or hides nothing")
        return hidden


def _as_slots(values: NDArray[np.float64]) -> list[complex]:
    padded = np.zeros(DEGREE)
    padded[: len(values)] = values
    return (padded[: DEGREE // 2] + 1j * padded[DEGREE // 2 :]).tolist()


def split_blocks(payload: bytes) -> Iterator[bytes]:
    """The ciphertexts of a payload; a length that cannot be is a ValueError."""
    place = 0
    while place < len(payload):
        length = int.from_bytes(payload[place : place + 4], "little")
        end = place + 4 + length
        if not 0 < length <= MOST_BLOCK_BYTES or end > len(payload):
            raise ValueError("a ciphertext ends too early")
        yield payload[place + 4 : end]
        place = end


def main() -> None:
    """Read the job, lock down, and only then look at what came from elsewhere."""
    job: dict[str, Any] = json.loads(sys.argv[1])
    sys.path[:0] = [entry for entry in job["sys_path"] if entry not in sys.path]
    source, target = os.fdopen(job["source"], "rb"), os.fdopen(job["target"], "wb")
    try:
        engine = Engine()
        _lock_down(job)
        source.seek(0)
        parts = [source.read(size) for size in job["sizes"]]
        if job["task"] == "add":
            target.write(engine.add(parts, job["numbers"]))
        else:
            target.write(engine.decrypt(parts[0], parts[1]).tobytes())
        target.flush()
    except Exception as error:
        _stop(REFUSED, str(error))


def _stop(code: int, message: str) -> NoReturn:
    os.write(2, message.encode("utf-8", "replace")[:2000])
    # No clean-up: an interpreter that has read hostile data should do as little more as possible.
    os._exit(code)


def _lock_down(job: dict[str, Any]) -> None:
    import resource

    with open("/proc/self/statm", encoding="ascii") as statm:
        address_space = int(statm.read().split()[0]) * resource.getpagesize()
    used = resource.getrusage(resource.RUSAGE_SELF)
    # One descriptor more than are open: the binding opens the scratch file by its path.
    free = os.dup(0)
    os.close(free)
    limits = {
        "RLIMIT_NOFILE": free + 1,
        "RLIMIT_CORE": 0,
        "RLIMIT_NPROC": 0,
        "RLIMIT_AS": address_space + job["memory"],
        "RLIMIT_CPU": int(used.ru_utime + used.ru_stime) + job["seconds"],
        "RLIMIT_FSIZE": job["output"],
    }
    for name, limit in limits.items():
        resource.setrlimit(getattr(resource, name), (limit, limit))
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event.startswith(_FORBIDDEN) or event == "resource.setrlimit":
        raise PermissionError(f"{event} is forbidden while ciphertexts are read")


if __name__ == "__main__":
    main()
