"""NumPy's generators of many addresses at once: the same numbers, without a seed sequence for each.

`default_rng([seed, t, i])` takes seven times as long as the permutation that a node draws from it.
Nearly all of that is the hashing of its address. Here one pass hashes the addresses of all nodes,
and one generator is set from one state to the next. The hash is O'Neill's, as NumPy has it.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Ints

Words = NDArray[np.uint32]

POOL = 4  # words of a seed sequence
XSHIFT = np.uint32(16)
INIT_A, MULT_A = 0x43B0D7E5, 0x931E8875
INIT_B, MULT_B = 0x8B51F9DD, 0x58F38DED
MIX_L, MIX_R = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
STEP = 0x2360ED051FC65DA44385DF649FCCF645  # by which PCG64 multiplies its state
WHOLE = (1 << 128) - 1
FEW = 12  # addresses below which hashing them one by one is quicker


def words(numbers: Sequence[int]) -> list[int]:
    """Return numbers of any length as words of 32 bits, the lowest first, as a seed sequence does.

    >>> words([0, 7, 2**32 + 1])
    [0, 7, 1, 1]
    """
    found = []
    for number in numbers:
        found.append(number & 0xFFFFFFFF)
        while number := number >> 32:
            found.append(number & 0xFFFFFFFF)
    return found


def states(before: Sequence[int], last: Ints) -> NDArray[np.uint64]:
    """Return `SeedSequence([*before, i]).generate_state(4, "uint64")` of every i in last: [n, 4].

    >>> by_numpy = np.random.SeedSequence([5, 1, 9]).generate_state(4, np.uint64)
    >>> bool((states([5, 1], np.array([9]))[0] == by_numpy).all())
    True
    """
    assert not len(last) or 0 <= last.min() <= last.max() < 1 << 32  # one word each
    entropy = [np.full(len(last), word, dtype=np.uint32) for word in words(before)]
    entropy.append(last.astype(np.uint32))
    none = np.zeros(len(last), dtype=np.uint32)
    const = INIT_A

    def hashed(value: Words) -> Words:
        nonlocal const
        value, const = value ^ np.uint32(const), const * MULT_A & 0xFFFFFFFF
        value = value * np.uint32(const)
        return value ^ (value >> XSHIFT)

    pool = [hashed(entropy[k] if k < len(entropy) else none) for k in range(POOL)]
    for source in range(POOL):
        for to in range(POOL):
            if to != source:
                pool[to] = _mixed(pool[to], hashed(pool[source]))
    for word in entropy[POOL:]:
        for to in range(POOL):
            pool[to] = _mixed(pool[to], hashed(word))
    found, const = np.empty((len(last), 2 * POOL), dtype=np.uint32), INIT_B
    for k in range(2 * POOL):
        value, const = pool[k % POOL] ^ np.uint32(const), const * MULT_B & 0xFFFFFFFF
        value = value * np.uint32(const)
        found[:, k] = value ^ (value >> XSHIFT)
    return found.astype("<u4").view("<u8").astype(np.uint64)


def _mixed(x: Words, y: Words) -> Words:
    found: Words = x * MIX_L - y * MIX_R
    return found ^ (found >> XSHIFT)


def generators(before: Sequence[int], last: Ints) -> Iterator[np.random.Generator]:
    """Yield `default_rng([*before, i])` for every i in last; each is good until the next.

    >>> drawn = [rng.permutation(4).tolist() for rng in generators([0, 1], np.arange(20))]
    >>> drawn[7] == np.random.default_rng([0, 1, 7]).permutation(4).tolist()
    True
    """
    if len(last) < FEW:
        yield from (np.random.default_rng([*before, int(i)]) for i in last)
        return
    bits = np.random.PCG64(0)
    rng = np.random.Generator(bits)
    for high, low, inc_high, inc_low in states(before, last).tolist():
        inc = ((inc_high << 64 | inc_low) << 1 | 1) & WHOLE
        state = ((high << 64 | low) + inc) * STEP + inc & WHOLE
        bits.state = {
            "bit_generator": "PCG64",
            "state": {"state": state, "inc": inc},
            "has_uint32": 0,
            "uinteger": 0,
        }
        yield rng
