"""The random numbers that torch draws for dropout on most processors, by a compiled loop.

That is the Mersenne Twister MT19937 (Matsumoto and Nishimura 1998), two of whose numbers make one
of 53 bits. Its next 624 numbers are made together, which a processor does many at a time.
"""

import numpy as np

from coterie.engine.kernels.loops import compiled

LENGTH, MIDDLE = 624, 397  # of the state, and where numbers are mixed with it
UPPER, LOWER, TWIST = np.uint32(0x80000000), np.uint32(0x7FFFFFFF), np.uint32(0x9908B0DF)
MASKS = np.uint32(0x9D2C5680), np.uint32(0xEFC60000)
BITS = np.uint64((1 << 53) - 1)


@compiled
def begin(seed, state):  # type: ignore[no-untyped-def]
    """Seed the state [624]; return the place of the next number, which is beyond its end."""
    state[0] = np.uint32(seed & 0xFFFFFFFF)
    for j in range(1, LENGTH):
        before = np.uint64(state[j - 1] ^ (state[j - 1] >> np.uint32(30)))
        state[j] = np.uint32((np.uint64(1812433253) * before + np.uint64(j)) & 0xFFFFFFFF)
    return LENGTH


@compiled
def factors(state, tempered, at, keep, times, out):  # type: ignore[no-untyped-def]
    """Set each of `out` to `times` with the probability `keep`, else to 0; return the next place.

    `tempered` [624] are the numbers that the state gives.
    """
    for n in range(len(out)):
        if at >= LENGTH:
            _twist(state, tempered)
            at = 0
        high = np.uint64(tempered[at])
        at += 1
        if at >= LENGTH:
            _twist(state, tempered)
            at = 0
        low = np.uint64(tempered[at])
        at += 1
        number = np.float64(((high << np.uint64(32)) | low) & BITS) * 2.0**-53
        out[n] = times if number < keep else out.dtype.type(0)
    return at


@compiled
def _twist(state, tempered):  # type: ignore[no-untyped-def]
    """Make the next 624 numbers."""
    for k in range(LENGTH - MIDDLE):
        state[k] = state[k + MIDDLE] ^ _mixed(state[k], state[k + 1])
    for k in range(LENGTH - MIDDLE, LENGTH - 1):
        state[k] = state[k + MIDDLE - LENGTH] ^ _mixed(state[k], state[k + 1])
    state[LENGTH - 1] = state[MIDDLE - 1] ^ _mixed(state[LENGTH - 1], state[0])
    for k in range(LENGTH):
        y = state[k]
        y ^= y >> np.uint32(11)
        y ^= (y << np.uint32(7)) & MASKS[0]
        y ^= (y << np.uint32(15)) & MASKS[1]
        tempered[k] = y ^ (y >> np.uint32(18))


@compiled
def _mixed(a, b):  # type: ignore[no-untyped-def]
    y = (a & UPPER) | (b & LOWER)
    return (y >> np.uint32(1)) ^ (TWIST if b & np.uint32(1) else np.uint32(0))
