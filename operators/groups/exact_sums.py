"""Exact sums of doubles: independent of order and batch boundaries, rounded once at the end.

A double is a whole number of at most 53 bits, multiplied by a power of two. A sum is kept as *limbs* of
28 bits each, like the digits of a number in base 2^28, and the bits of the whole number are added to them:

    5.75 = 23 * 2^-2      limb 40          limb 41          limb 42         of 79
                          0b..1100 << ..   0b..0101          0

Sums of whole numbers do not depend on the order of addition. Carries are propagated at the end. A value
changes three consecutive limbs, each by less than 2^29, so the sum of 2^34 values fits into 64 bits. Only
these three limbs are stored, with the number of the first limb (``bin``), so sums of values of similar size
take little space.

Infinities and NaN are counted in separate bins.

Source: long accumulators are Kulisch's idea (*Computer Arithmetic and Validity*, 2008, ch. 8).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from operators.kernels.keys import INT64, INT64S_READ, Int64s

Float64s = npt.NDArray[np.float64]

#: Bits of a limb.
_BITS = 28
_MASK = (1 << _BITS) - 1
#: Bits of a double's mantissa as a whole number, and the exponent offset that gives the smallest double a
#: shift of 0.
_MANTISSA_BITS = 53
_LEAST_EXPONENT = 1126
#: Limbs of a sum: 75 limbs in which values begin, further limbs that values and carries reach, and the sign.
_LIMBS = 84
#: Bins that count NaN and infinities.
NAN, INFINITE, MINUS_INFINITE = 1000, 1001, 1002


class Limbs(NamedTuple):
    """Limbs of n values, int64[n] each: number of the first limb (bin), and amounts to add to three limbs."""

    bins: Int64s
    low: Int64s
    middle: Int64s
    high: Int64s


def limbs(values: Float64s) -> Limbs:
    """Return the limbs that doubles add to a sum.

    Args:
        values: float64[n], the doubles.
    """
    finite = np.isfinite(values)
    mantissa, exponent = np.frexp(np.where(finite, values, 0.0))
    whole = (mantissa * 2.0**_MANTISSA_BITS).astype(np.int64)
    # Zero has exponent 0 here, but any exponent would give the same sum.
    bins, shift = np.divmod(exponent.astype(np.int64) - _MANTISSA_BITS + _LEAST_EXPONENT, _BITS)
    sign, size = np.sign(whole), np.abs(whole)
    first, second = (size & _MASK) << shift, (size >> _BITS) << shift
    low = sign * (first & _MASK)
    middle = sign * ((first >> _BITS) + (second & _MASK))
    high = sign * (second >> _BITS)
    for other, bin_ in (
        (np.isnan(values), NAN),
        (values == np.inf, INFINITE),
        (values == -np.inf, MINUS_INFINITE),
    ):
        bins[other], low[other] = bin_, 1
    return Limbs(bins, low, middle, high)


def rounded_sums(groups: int, group: Int64s, added: Limbs) -> Float64s:
    """Return the sums of groups, each rounded to the nearest double, ties to even.

    Args:
        groups: Number of groups, g.
        group: int64[n], ascending, the group to which each entry is added.
        added: The entries; an entry may already be a sum over several values.

    Returns:
        float64[g]; 0.0 for a group without entries; infinite if the sum is out of the range of doubles.
    """
    sums: Float64s = _rounded_sums(groups, group, added.bins, added.low, added.middle, added.high)
    return sums


@numba.njit(nogil=True, cache=True)
def _carried(digits: Int64s) -> np.int64:
    """Bring every limb into [0, 2^28); return the last carry, which is -1 for a negative number."""
    carry = np.int64(0)
    for place in range(len(digits)):
        value = digits[place] + carry
        digits[place] = value & _MASK
        carry = value >> _BITS
    return carry


@numba.njit(nogil=True, cache=True)
def _rounded(digits: Int64s) -> float:
    """Return the double nearest to the number in the limbs."""
    sign = 1.0
    if _carried(digits) < 0:
        sign = -1.0
        for place in range(len(digits)):
            digits[place] = -digits[place]
        # The carry of -1 was the negative sign, so the negated number has no carry.
        _carried(digits)
    top = len(digits) - 1
    while top >= 0 and digits[top] == 0:
        top -= 1
    if top < 0:
        return 0.0
    # Take the 64 highest bits; lower bits only decide whether the value is a tie or above it.
    bits, width = np.uint64(digits[top]), 0
    while digits[top] >> width:
        width += 1
    exponent, place, sticky = top * _BITS + width - 64, top - 1, False
    missing = 64 - width
    while missing > 0:
        digit = np.uint64(digits[place]) if place >= 0 else np.uint64(0)
        if missing >= _BITS:
            bits = (bits << np.uint64(_BITS)) | digit
            missing -= _BITS
        else:
            rest = np.uint64(_BITS - missing)
            bits = (bits << np.uint64(missing)) | (digit >> rest)
            sticky = (digit & ((np.uint64(1) << rest) - np.uint64(1))) != 0
            missing = 0
        place -= 1
    while place >= 0 and not sticky:
        sticky = digits[place] != 0
        place -= 1
    dropped = bits & np.uint64(0x7FF)
    kept = bits >> np.uint64(11)
    half = np.uint64(0x400)
    if dropped > half or (dropped == half and (sticky or kept & np.uint64(1))):
        kept += np.uint64(1)
    # All values are multiples of the smallest double, so a subnormal sum is exact.
    return sign * math.ldexp(float(kept), exponent + 11 - _LEAST_EXPONENT)


@numba.njit(
    numba.types.Array(numba.types.float64, 1, "C")(
        INT64, INT64S_READ, INT64S_READ, INT64S_READ, INT64S_READ, INT64S_READ
    ),
    nogil=True,
    cache=True,
)
def _rounded_sums(
    groups: int, group: Int64s, bins: Int64s, low: Int64s, middle: Int64s, high: Int64s
) -> Float64s:
    sums = np.zeros(groups, dtype=np.float64)
    digits = np.zeros(_LIMBS, dtype=np.int64)
    row = 0
    while row < len(group):
        digits[:] = 0
        nan = plus = minus = False
        current = group[row]
        while row < len(group) and group[row] == current:
            place = bins[row]
            if place == NAN:
                nan = True
            elif place == INFINITE:
                plus = True
            elif place == MINUS_INFINITE:
                minus = True
            else:
                digits[place] += low[row]
                digits[place + 1] += middle[row]
                digits[place + 2] += high[row]
            row += 1
        if nan or (plus and minus):
            sums[current] = np.nan
        elif plus or minus:
            sums[current] = np.inf if plus else -np.inf
        else:
            sums[current] = _rounded(digits)
    return sums
