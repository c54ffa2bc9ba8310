"""NumPy's permutations of many nodes in one compiled call: the same numbers, bit for bit.

Node i's order in step t is `default_rng([seed, t, i]).permutation(n)`: a seed sequence hashes the
address, PCG64 begins from that, and Fisher and Yates shuffle: numbers of as many bits as the place
has are drawn until one is no larger. Words are 64 bits wide and unsigned, as signed and unsigned
integers together make floats.
"""

import numpy as np

from coterie.core import seeding
from coterie.engine.kernels.loops import compiled

U = np.uint64
LOW = U(0xFFFFFFFF)
INIT_A, MULT_A, INIT_B, MULT_B = map(
    U, (seeding.INIT_A, seeding.MULT_A, seeding.INIT_B, seeding.MULT_B)
)
MIX_L, MIX_R = U(seeding.MIX_L), U(seeding.MIX_R)
STEP_HIGH, STEP_LOW = U(seeding.STEP >> 64), U(seeding.STEP & (1 << 64) - 1)
HALF, ROTATE, ONE, NONE, WHOLE = U(32), U(58), U(1), U(0), U(64)


@compiled
def take_orders(words, nodes, sizes, starts, width, ends, found):  # type: ignore[no-untyped-def]
    """Write the rows of the data that nodes take: node i in its step t to found[ends[i, t] : ...].

    A node of more than `width` examples, which begin at starts[i], takes as many of a permutation
    as there is room for; words[t] are those of the address before the node, with room for it.
    """
    most = 0
    for n in sizes:
        most = max(most, n)
    order = np.empty(most, dtype=np.int64)
    state = np.empty(4, dtype=np.uint64)
    for i in range(len(nodes)):
        for t in range(len(words)):
            place = found[ends[i, t] : ends[i, t + 1]]
            for k in range(sizes[i]):
                order[k] = starts[i] + k
            if sizes[i] > width:
                words[t, -1] = nodes[i]
                _seed(words[t], state)
                _shuffle(state, order[: sizes[i]])
            for k in range(len(place)):
                place[k] = order[k]


@compiled
def _seed(words, state):  # type: ignore[no-untyped-def]
    """Hash an address as a seed sequence does, and begin PCG64 from it: high, low, increment's."""
    pool = np.zeros(4, dtype=np.uint64)
    const = INIT_A
    for k in range(4):
        const, pool[k] = _hashed(words[k] if k < len(words) else NONE, const, MULT_A)
    for source in range(max(4, len(words))):
        for to in range(4):
            if to != source:
                const, value = _hashed(pool[source] if source < 4 else words[source], const, MULT_A)
                mixed = (pool[to] * MIX_L - value * MIX_R) & LOW
                pool[to] = mixed ^ (mixed >> U(16))
    const = INIT_B
    for k in range(4):
        const, low = _hashed(pool[2 * k % 4], const, MULT_B)
        const, high = _hashed(pool[(2 * k + 1) % 4], const, MULT_B)
        state[k] = high << HALF | low
    high, low = state[0], state[1]
    state[2], state[3] = state[2] << ONE | state[3] >> U(63), state[3] << ONE | ONE
    total = low + state[3]
    state[0], state[1] = high + state[2] + U(total < low), total
    _advance(state)


@compiled
def _hashed(value, const, by):  # type: ignore[no-untyped-def]
    """Return the next constant, and a word of 32 bits hashed by this one."""
    following = const * by & LOW
    value = (value ^ const) * following & LOW
    return following, value ^ (value >> U(16))


@compiled
def _high(a, b):  # type: ignore[no-untyped-def]
    """Return the upper half of a product of two words of 64 bits."""
    a1, a0, b1, b0 = a >> HALF, a & LOW, b >> HALF, b & LOW
    middle = a1 * b0 + (a0 * b0 >> HALF)
    other = a0 * b1 + (middle & LOW)
    return a1 * b1 + (middle >> HALF) + (other >> HALF)


@compiled
def _advance(state):  # type: ignore[no-untyped-def]
    """Multiply the state of 128 bits and add the increment."""
    high = _high(state[1], STEP_LOW) + state[0] * STEP_LOW + state[1] * STEP_HIGH
    low = state[1] * STEP_LOW
    total = low + state[3]
    state[0], state[1] = high + state[2] + U(total < low), total


@compiled
def _shuffle(state, order):  # type: ignore[no-untyped-def]
    """Shuffle from the last place to the second, as NumPy does."""
    held, holds = NONE, False  # half a number of 64 bits is kept for the next draw
    mask = NONE
    while np.int64(mask) < len(order) - 1:
        mask = mask << ONE | ONE
    for at in range(len(order) - 1, 0, -1):
        while np.int64(mask >> ONE) >= at:
            mask >>= ONE
        chosen = np.int64(at + 1)
        while chosen > at:
            if holds:
                word, holds = held, False
            else:
                _advance(state)
                by, both = state[0] >> ROTATE, state[0] ^ state[1]
                number = both >> by | both << ((WHOLE - by) & U(63))
                word, held, holds = number & LOW, number >> HALF, True
            chosen = np.int64(word & mask)
        order[at], order[chosen] = order[chosen], order[at]
