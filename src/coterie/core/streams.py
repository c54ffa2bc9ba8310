"""Every stream of random numbers that a seed decides.

A choice made once has the address (seed, 0, stream), one made at step t (seed, 0, stream, t), and
the batches of node i at step t >= 1 have (seed, t, i). So neither order, engine nor a resumed run
can change a result, and there is no generator whose state would have to be kept.
"""

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """What a stream decides."""

    PLAN = 1
    SPLIT = 2
    PARTITION = 3
    TOPOLOGY = 4
    SAMPLE = 5
    SPEED = 6
    SKETCH = 7
    NOISE = 8
    PARTICIPATION = 9
    MODEL = 10


def generator(seed: int, stream: Stream, *when: int) -> np.random.Generator:
    """Return the generator of a stream, of its own at every step that is given.

    >>> draws = [generator(0, Stream.PLAN).random(), generator(0, Stream.PLAN).random()]
    >>> draws[0] == draws[1] != generator(0, Stream.SPLIT).random()
    True
    """
    return np.random.default_rng([seed, 0, int(stream), *when])
