"""Wrong formulas in sealing: weights, packing, random factors, noise, and what is authenticated."""

from __future__ import annotations

from mutants.mutant import Mutant

_SHARES = ("sealed/test_shares.py",)
_PACKING = ("sealed/test_packing.py",)
_PAILLIER = ("sealed/test_paillier.py",)
_FLOODING = ("sealed/test_flooding.py",)
_CKKS = ("sealed/test_ckks.py",)
_API = ("sealed/test_api.py",)
_OPENED = ("audits/test_opened.py",)

MUTANTS = (
    Mutant(
        "sealing: weights rounded each by itself",
        "sealed/shares.py",
        "math.floor(one) for one in exact",
        "round(one) for one in exact",
        _SHARES,
    ),
    Mutant(
        "sealing: what is left goes to the smallest remainders",
        "sealed/shares.py",
        "(numbers[place] - exact[place], place)",
        "(exact[place] - numbers[place], place)",
        _SHARES,
    ),
    Mutant(
        "sealing: a common factor is taken out of the numbers only",
        "sealed/shares.py",
        "pieces // common, float(total)",
        "pieces, float(total)",
        _SHARES,
    ),
    Mutant(
        "sealing: no room for weights in a slot",
        "sealed/packing.py",
        "(self.pieces - 1).bit_length() + _SIGN_AND_GUARD",
        "_SIGN_AND_GUARD",
        _PACKING,
    ),
    Mutant(
        "sealing: values cut off instead of rounded",
        "sealed/packing.py",
        "np.rint(values * 2.0**self.fraction_bits)",
        "np.trunc(values * 2.0**self.fraction_bits)",
        _PAILLIER,
    ),
    Mutant(
        "sealing: borrows of negative slots are not undone",
        "sealed/packing.py",
        "lifted = number + offset",
        "lifted = number",
        _PACKING,
    ),
    Mutant(
        "sealing: overflow noticed on the positive side only",
        "sealed/packing.py",
        "int(np.abs(sums).max()) > pieces * self.largest",
        "int(sums.max()) > pieces * self.largest",
        _PACKING,
    ),
    Mutant(
        "sealing: the bound is checked on the positive side only",
        "sealed/api.py",
        "float(flat.abs().max()) > public.limits.bound",
        "float(flat.max()) > public.limits.bound",
        _API,
    ),
    Mutant(
        "sealing: no random factor",
        "sealed/paillier.py",
        "table.power(secrets.randbits(length))",
        "table.power(0)",
        _PAILLIER,
    ),
    Mutant(
        "sealing: the base is no n-th power",
        "sealed/paillier.py",
        "gmp.powmod(n - gmp.powmod(x, 2, n), n, n * n)",
        "n - gmp.powmod(x, 2, n)",
        _PAILLIER,
    ),
    Mutant(
        "sealing: a digit of the table is off by one place",
        "sealed/large_numbers.py",
        "unit = row.pop()",
        "unit = row[-2]",
        _PAILLIER,
    ),
    Mutant(
        "sealing: ciphertexts weighed by multiplying instead of raising",
        "sealed/paillier.py",
        "gmp.powmod(one, number, square)",
        "one * number % square",
        _PAILLIER,
    ),
    Mutant(
        "sealing: ciphertexts that share a factor with the key pass",
        "sealed/paillier.py",
        "gmp.gcd(product, self.modulus) != 1",
        "gmp.gcd(product, self.modulus) == 0",
        _PAILLIER,
    ),
    Mutant(
        "sealing: short keys pass with legacy",
        "sealed/paillier.py",
        "not isinstance(bits, int) or not LEAST_BITS <= bits <= MOST_BITS",
        "not isinstance(bits, int) or not bits <= MOST_BITS",
        _PAILLIER,
    ),
    Mutant(
        "sealing: noise of the norm per coefficient, not of all of them",
        "sealed/flooding.py",
        "math.sqrt(degree) * deviation * math.sqrt(degree / 2)",
        "deviation * math.sqrt(degree / 2)",
        _FLOODING,
    ),
    Mutant(
        "sealing: noise does not grow with the openings",
        "sealed/flooding.py",
        "math.sqrt(12 * openings)",
        "math.sqrt(12)",
        _FLOODING,
    ),
    Mutant(
        "sealing: opened CKKS values leave without noise",
        "sealed/ckks.py",
        "found = flood(means, public.deviation)",
        "found = flood(means, 0.0)",
        _CKKS,
    ),
    Mutant(
        "sealing: an opening counts as one ciphertext",
        "sealed/ckks.py",
        "self.opened.spend(_blocks(count), limit=public.openings)",
        "self.opened.spend(1, limit=public.openings)",
        _CKKS,
    ),
    Mutant(
        "sealing: the scale of a foreign ciphertext is not checked",
        "sealed/ckks_engine.py",
        "len(PRIME_BITS) - 1, 2.0**SCALE_BITS, True)",
        "len(PRIME_BITS) - 1, hidden.scale, True)",
        _CKKS,
    ),
    Mutant(
        "sealing: the tag does not cover the header",
        "sealed/authenticate.py",
        "for part in (client, header, payload):",
        "for part in (client, payload):",
        _API,
    ),
    Mutant(
        "sealing: the tag does not cover the sender",
        "sealed/authenticate.py",
        "for part in (client, header, payload):",
        "for part in (header, payload):",
        _API,
    ),
    Mutant(
        "sealing: updates of earlier rounds pass",
        "sealed/authenticate.py",
        "if update.round != round:",
        "if update.round > round:",
        _API,
    ),
    Mutant(
        "sealing: a client counts twice",
        "sealed/admission.py",
        "if update.client and update.client in seen:",
        "if False:",
        _API,
    ),
    Mutant(
        "sealing: a sum is opened as a mean",
        "sealed/api.py",
        "means * total.weight, 0",
        "means, 0",
        _API,
    ),
    Mutant(
        "sealing: the mean of clients taken for one client's local training",
        "audits/pooling.py",
        "mean.local.batch_size * len(runs)",
        "mean.local.batch_size",
        _OPENED,
    ),
    Mutant(
        "sealing: a leaking total is recommended",
        "report/remedies.py",
        'return ("no", leaks) if total > threshold else ("yes", "")',
        'return ("yes", "")',
        _OPENED,
    ),
)
