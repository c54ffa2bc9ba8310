"""Small-batch SGD on chains of linear layers as plain loops, compiled by Numba: nodes one by one.

What is here and in shuffling.py needs Numba (`pip install 'coterie[fast]'`). With ten rows a
product is so short that Python and torch's dispatcher take longer than the processor. Here one call
trains many nodes, and threads do not wait for each other, as no lock is held. A node's weights stay
in the second-level cache from its first batch to its last.

Every row of weights and values begins at a multiple of 64 bytes and is filled up with zeros, and
every batch is filled up to a multiple of five rows. Sums may be reordered, but a number that is
none stays none: a run that diverges is seen.
"""

import os
from contextlib import suppress

import llvmlite.binding
import numpy as np

# Without it LLVM uses half the width of processors with AVX-512. Numba reads it when it is
# imported, and again before it compiles: if it were gone by then, what is compiled today would have
# other last digits than what is kept for tomorrow.
os.environ.setdefault(
    "NUMBA_CPU_FEATURES",
    f"{llvmlite.binding.get_host_cpu_features().flatten()},-prefer-256-bit",
)
import numba

REORDER = {"reassoc", "contract", "nsz", "arcp"}
LANES, ROWS = 16, 5  # numbers of one row, and rows of one batch, come in multiples of these
# Of a layer's table; DROPS is where its values' factors lie, which dropout draws, or 0.
PLACE, BIAS, HEIGHT, WIDTH, STRIDE, WEIGHTS, BIASES, VALUES, RELU, DROPS = range(10)
# Numbers of long rows that are taken at a time. Their places have no sign: LLVM would else look
# for negative ones, which count from the end.
PIECE = 1024
zero = np.float32(0)  # which a sum of doubles makes one of


def compiled(function):  # type: ignore[no-untyped-def]
    """Compile on first use; kept beside this file, or in the user's cache, where one can write.

    What a function calls becomes a part of it. Else it would call what was compiled first under
    that name in a process, such as on its own, whose sums may be in another order.
    """
    how = {"nogil": True, "fastmath": REORDER, "error_model": "numpy", "forceinline": True}
    try:
        return _if_kept(numba.njit(cache=True, **how)(function))
    except RuntimeError:  # there is no place to keep it
        return numba.njit(**how)(function)


def _if_kept(function):  # type: ignore[no-untyped-def]
    """Let a function be compiled again where what was kept is damaged, or the disk is full."""
    cache = getattr(function, "_cache", None)
    if cache is None:  # nothing is compiled: NUMBA_DISABLE_JIT
        return function
    load, save = cache.load_overload, cache.save_overload

    def load_whole(*given):  # type: ignore[no-untyped-def]
        try:
            return load(*given)
        except Exception:  # of unpickling, which may be any
            with suppress(OSError):
                cache.flush()
            return None

    def save_if_possible(*given):  # type: ignore[no-untyped-def]
        with suppress(OSError):
            save(*given)

    cache.load_overload, cache.save_overload = load_whole, save_if_possible
    return function


@compiled
def train(given, rows, total, group, share, table, space, x, unit, y, order, ends, width, rates):  # type: ignore[no-untyped-def]
    """Train node after node, w <- w - rate grad on each batch of `width` examples, and add them up.

    Node i starts from the model given[rows[i]], and share[i] times what it ends with is added to
    total[group[i]], all [d]. In its step t it takes the examples order[ends[i, t] : ends[i, t + 1]]
    of x [n, in], which is multiplied by `unit`, and y [n]. The table tells where layers lie, and
    `space` is memory that was full of zeros.
    """
    for i in range(len(rows)):
        load(given[rows[i]], table, space)
        for t in range(len(rates)):
            for at in range(ends[i, t], ends[i, t + 1], width):
                taken = order[at : min(at + width, ends[i, t + 1])]
                _gather(x, unit, taken, _values(table, space, 0, _whole_rows(len(taken))))
                _step(table, space, y, taken, rates[t], False)
        _add(total[group[i]], share[i], table, space)


@compiled
def load(w, table, space):  # type: ignore[no-untyped-def]
    """Copy a model [d] to where it is trained."""
    for layer in table[:-1]:
        height, width = layer[HEIGHT], layer[WIDTH]
        for o in range(height):
            here, there = layer[WEIGHTS] + o * layer[STRIDE], layer[PLACE] + o * width
            _copy(space[here : here + width], w[there : there + width])
        if layer[BIAS]:
            here, there = layer[BIASES], layer[PLACE] + height * width
            _copy(space[here : here + height], w[there : there + height])


@compiled
def _add(total, share, table, space):  # type: ignore[no-untyped-def]
    """Add what was trained, times a share, to a sum [d]."""
    for layer in table[:-1]:
        height, width = layer[HEIGHT], layer[WIDTH]
        for o in range(height):
            here, there = layer[WEIGHTS] + o * layer[STRIDE], layer[PLACE] + o * width
            _add_row(total[there : there + width], share, space[here : here + width])
        if layer[BIAS]:
            here, there = layer[BIASES], layer[PLACE] + height * width
            _add_row(total[there : there + height], share, space[here : here + height])


@compiled
def store(table, space, w):  # type: ignore[no-untyped-def]
    """Copy what was trained to a model [d]."""
    for layer in table[:-1]:
        height, width = layer[HEIGHT], layer[WIDTH]
        for o in range(height):
            here, there = layer[WEIGHTS] + o * layer[STRIDE], layer[PLACE] + o * width
            _copy(w[there : there + width], space[here : here + width])
        if layer[BIAS]:
            here, there = layer[BIASES], layer[PLACE] + height * width
            _copy(w[there : there + height], space[here : here + height])


@compiled
def _whole_rows(count):  # type: ignore[no-untyped-def]
    """Round the rows of a batch up to a multiple."""
    return -(-count // ROWS) * ROWS


@compiled
def _copy(to, of):  # type: ignore[no-untyped-def]
    for d in range(len(to)):
        to[d] = of[d]


@compiled
def _add_row(to, share, of):  # type: ignore[no-untyped-def]
    for d in range(len(to)):
        to[d] += share * of[d]


@compiled
def _values(table, space, number, m):  # type: ignore[no-untyped-def]
    """Return what goes into a layer, or the last one's scores: [m, stride]."""
    at, stride = table[number, VALUES], table[number, STRIDE]
    return space[at : at + m * stride].reshape(m, stride)


@compiled
def _weight(layer, space):  # type: ignore[no-untyped-def]
    """Return a layer's weight [height, stride], of an even height: a row of zeros may follow."""
    height = layer[HEIGHT] + layer[HEIGHT] % 2
    end = layer[WEIGHTS] + height * layer[STRIDE]
    return space[layer[WEIGHTS] : end].reshape(height, layer[STRIDE])


@compiled
def learn(table, space, values, y, taken, rate, before):  # type: ignore[no-untyped-def]
    """Take one batch whose values [B, in] others made; their gradient goes to before [B, in]."""
    m, width = _whole_rows(len(taken)), values.shape[1]
    into = _values(table, space, 0, m)
    into[len(taken) :] = zero
    for r in range(len(taken)):
        _copy(into[r, :width], values[r])
    _step(table, space, y, taken, rate, True)
    spare, stride = table[-1, WEIGHTS], table[0, STRIDE]
    for r in range(len(taken)):
        here = spare + r * stride
        _copy(before[r], space[here : here + width])


@compiled
def _step(table, space, y, taken, rate, whole):  # type: ignore[no-untyped-def]
    """Take one batch: forward, then back; a layer's values give way to their gradient.

    That of the first values is made where the `whole` way back is gone, in the spare place.
    """
    last, m = len(table) - 1, _whole_rows(len(taken))
    for number in range(last):
        layer = table[number]
        out = _values(table, space, number + 1, m)
        _forward(_values(table, space, number, m), _weight(layer, space), out)
        _add_bias(out, space[layer[BIASES] : layer[BIASES] + out.shape[1]], layer[RELU])
        if layer[DROPS]:
            _multiply(out, space[layer[DROPS] : layer[DROPS] + out.size].reshape(out.shape))
    dy = _values(table, space, last, m)
    _less_one(dy, y, taken, table[last - 1, HEIGHT], rate)
    for number in range(last - 1, -1, -1):
        layer = table[number]
        into, weight = _values(table, space, number, m), _weight(layer, space)
        spare = table[last, WEIGHTS]
        dx = space[spare : spare + into.size].reshape(into.shape)
        if number or whole:
            _back(dy, weight, dx)
        _update(into, weight, dy)
        if layer[BIAS]:
            bias = space[layer[BIASES] : layer[BIASES] + dy.shape[1]]
            for r in range(m):
                for o in range(len(bias)):
                    bias[o] -= dy[r, o]
        if number:
            _through(dx, into, table[number - 1, RELU])
            drops = table[number - 1, DROPS]
            if drops:
                _multiply(into, space[drops : drops + into.size].reshape(into.shape))
        dy = into


@compiled
def _gather(x, unit, taken, into):  # type: ignore[no-untyped-def]
    """Take a batch's examples as floats; rows beyond them are zeros."""
    for r in range(len(taken)):
        row = x[taken[r]]
        for d in range(len(row)):
            into[r, d] = unit * into.dtype.type(row[d])
    into[len(taken) :] = zero


@compiled
def _add_bias(out, bias, relu):  # type: ignore[no-untyped-def]
    for r in range(len(out)):
        for o in range(len(bias)):
            value = out[r, o] + bias[o]
            out[r, o] = zero if relu and value < zero else value


@compiled
def _multiply(values, factors):  # type: ignore[no-untyped-def]
    for r in range(len(values)):
        for d in range(values.shape[1]):
            values[r, d] *= factors[r, d]


@compiled
def _less_one(scores, y, taken, classes, rate):  # type: ignore[no-untyped-def]
    """Turn scores into the gradient of the mean loss by them, times the rate: softmax less one."""
    share = scores.dtype.type(rate / len(taken))
    for r in range(len(taken)):
        most = scores[r, 0]
        for k in range(1, classes):
            most = max(most, scores[r, k])
        total = zero
        for k in range(classes):
            scores[r, k] = np.exp(scores[r, k] - most)
            total += scores[r, k]
        for k in range(classes):
            scores[r, k] *= share / total
        scores[r, y[taken[r]]] -= share
    scores[len(taken) :] = zero


@compiled
def _through(dx, into, relu):  # type: ignore[no-untyped-def]
    """Put the gradient in the place of a layer's values; where a ReLU gave zero, it is zero."""
    for r in range(len(into)):
        for d in range(into.shape[1]):
            into[r, d] = zero if relu and into[r, d] == zero else dx[r, d]


@compiled
def _forward(x, weight, out):  # type: ignore[no-untyped-def]
    """out [m, height] = x weight', five rows of x and two of the weight at a time."""
    height, stride = weight.shape
    for r in range(0, len(x), ROWS):
        for o in range(0, height, 2):
            a0 = a1 = a2 = a3 = a4 = b0 = b1 = b2 = b3 = b4 = zero
            for d in range(stride):
                a, b = weight[o, d], weight[o + 1, d]
                a0 += a * x[r, d]
                b0 += b * x[r, d]
                a1 += a * x[r + 1, d]
                b1 += b * x[r + 1, d]
                a2 += a * x[r + 2, d]
                b2 += b * x[r + 2, d]
                a3 += a * x[r + 3, d]
                b3 += b * x[r + 3, d]
                a4 += a * x[r + 4, d]
                b4 += b * x[r + 4, d]
            out[r, o], out[r, o + 1] = a0, b0
            out[r + 1, o], out[r + 1, o + 1] = a1, b1
            out[r + 2, o], out[r + 2, o + 1] = a2, b2
            out[r + 3, o], out[r + 3, o + 1] = a3, b3
            out[r + 4, o], out[r + 4, o + 1] = a4, b4


@compiled
def _back(dy, weight, dx):  # type: ignore[no-untyped-def]
    """dx [m, stride] = dy weight, four rows of the weight at a time, then two.

    Long rows are taken in pieces, so that those at work stay in the first-level cache.
    """
    height, stride = weight.shape
    whole = height - height % 4
    for begin in range(0, stride, PIECE):
        at, end = np.uint64(begin), np.uint64(min(begin + PIECE, stride))
        for r in range(0, len(dy), ROWS):
            dx[r : r + ROWS, at:end] = zero
            for o in range(0, whole, 4):
                for k in range(r, r + ROWS):
                    a0, a1, a2, a3 = dy[k, o], dy[k, o + 1], dy[k, o + 2], dy[k, o + 3]
                    for d in range(at, end):
                        dx[k, d] += (
                            a0 * weight[o, d]
                            + a1 * weight[o + 1, d]
                            + a2 * weight[o + 2, d]
                            + a3 * weight[o + 3, d]
                        )
            for o in range(whole, height, 2):
                for k in range(r, r + ROWS):
                    a0, a1 = dy[k, o], dy[k, o + 1]
                    for d in range(at, end):
                        dx[k, d] += a0 * weight[o, d] + a1 * weight[o + 1, d]


@compiled
def _update(x, weight, dy):  # type: ignore[no-untyped-def]
    """weight -= dy' x, ten rows of x at a time, then five; long rows in pieces."""
    height, stride = weight.shape
    for begin in range(0, stride, PIECE):
        at, end = np.uint64(begin), np.uint64(min(begin + PIECE, stride))
        for r in range(0, len(x) - ROWS, 2 * ROWS):
            for o in range(height):
                a0, a1, a2, a3 = dy[r, o], dy[r + 1, o], dy[r + 2, o], dy[r + 3, o]
                a4, b0, b1, b2 = dy[r + 4, o], dy[r + 5, o], dy[r + 6, o], dy[r + 7, o]
                b3, b4 = dy[r + 8, o], dy[r + 9, o]
                for d in range(at, end):
                    weight[o, d] -= (
                        a0 * x[r, d]
                        + a1 * x[r + 1, d]
                        + a2 * x[r + 2, d]
                        + a3 * x[r + 3, d]
                        + a4 * x[r + 4, d]
                        + b0 * x[r + 5, d]
                        + b1 * x[r + 6, d]
                        + b2 * x[r + 7, d]
                        + b3 * x[r + 8, d]
                        + b4 * x[r + 9, d]
                    )
        if len(x) % (2 * ROWS):
            _less_five(x[len(x) - ROWS :], weight, dy[len(x) - ROWS :], at, end)


@compiled
def _less_five(x, weight, dy, at, end):  # type: ignore[no-untyped-def]
    """weight -= dy' x, for five rows and some columns."""
    for o in range(len(weight)):
        a0, a1, a2, a3, a4 = dy[0, o], dy[1, o], dy[2, o], dy[3, o], dy[4, o]
        for d in range(at, end):
            weight[o, d] -= a0 * x[0, d] + a1 * x[1, d] + a2 * x[2, d] + a3 * x[3, d] + a4 * x[4, d]
