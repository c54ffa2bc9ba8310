"""What lies between convolutions as compiled loops: images [B, H, W, C], whose channels come last.

torch makes several passes over memory for each of these; here it is one. Nothing is divided among
threads, and no lock is held.
"""

import numpy as np

from coterie.engine.kernels.loops import compiled, zero

EIGHT = 8  # places of an image that are taken at once


@compiled
def pool(x, side, y, where):  # type: ignore[no-untyped-def]
    """y [B, h, w, C] = the most of every side x side window of x, and where in it that is.

    What is no number counts where it comes first in its window. A model that diverges has them all
    over.
    """
    B, h, w, C = y.shape
    if side == 2:
        _pool_fours(x.reshape(B, x.shape[1], -1), y.reshape(B, h, -1), where.reshape(B, h, -1), C)
        return
    for b in range(B):
        for i in range(h):
            for j in range(w):
                most, place = y[b, i, j], where[b, i, j]
                first = x[b, side * i, side * j]
                for c in range(C):
                    most[c] = first[c]
                    place[c] = 0
                for k in range(1, side * side):
                    other = x[b, side * i + k // side, side * j + k % side]
                    for c in range(C):
                        more = other[c] > most[c]
                        most[c] = other[c] if more else most[c]
                        place[c] = k if more else place[c]


@compiled
def _pool_fours(x, y, where, channels):  # type: ignore[no-untyped-def]
    """Pool rows of numbers by twos, in one pass. Places have no sign, as in loops.py."""
    C, second, third, fourth = np.uint64(channels), np.uint8(1), np.uint8(2), np.uint8(3)
    for b in range(len(y)):
        for i in range(y.shape[1]):
            top, bottom, most, place = x[b, 2 * i], x[b, 2 * i + 1], y[b, i], where[b, i]
            for j in range(y.shape[2] // channels):
                to = np.uint64(j) * C
                at = to + to
                for c in range(C):
                    a, other = top[at + c], top[at + C + c]
                    k = second if other > a else np.uint8(0)
                    a = other if other > a else a
                    other = bottom[at + c]
                    k = third if other > a else k
                    a = other if other > a else a
                    other = bottom[at + C + c]
                    place[to + c] = fourth if other > a else k
                    most[to + c] = other if other > a else a


@compiled
def unpool(dy, where, side, dx):  # type: ignore[no-untyped-def]
    """Put the gradient dy [B, h, w, C] where the most was; the rest of each window is zero."""
    B, h, w, C = dy.shape
    for b in range(B):
        for i in range(h):
            for k in range(side):
                for j in range(w):
                    given, place = dy[b, i, j], where[b, i, j]
                    for n in range(side):
                        to, at = dx[b, side * i + k, side * j + n], side * k + n
                        for c in range(C):
                            to[c] = given[c] if place[c] == at else zero


@compiled
def normalise(x, size, a, k, y, root):  # type: ignore[no-untyped-def]
    """y = x s^-3/4, root = s^-1/2 with s = k + a (sum of x^2 over `size` channels); all [N, C]."""
    N, C = x.shape
    squares, sums = np.zeros(C + size, x.dtype), np.empty(C, x.dtype)
    half, one = size // 2, x.dtype.type(1)
    for n in range(N):
        row = x[n]
        for c in range(C):
            squares[half + c] = row[c] * row[c]
        _around(squares, size, sums)
        for c in range(C):
            found = one / np.sqrt(k + a * sums[c])
            root[n, c] = found
            y[n, c] = row[c] * found * np.sqrt(found)


@compiled
def normalise_back(dy, x, root, size, a):  # type: ignore[no-untyped-def]
    """Turn dy into dx = g s^-3/4 - 3/2 a x (sum of g x s^-7/4 around), in place; all [N, C]."""
    N, C = x.shape
    parts, sums = np.zeros(C + size, x.dtype), np.empty(C, x.dtype)
    half, times = size // 2, x.dtype.type(1.5) * a
    for n in range(N):
        given, row, roots = dy[n], x[n], root[n]
        for c in range(C):
            given[c] *= roots[c] * np.sqrt(roots[c])
            parts[half + c] = given[c] * row[c] * roots[c] * roots[c]
        _around(parts, size, sums)
        for c in range(C):
            given[c] -= times * row[c] * sums[c]


@compiled
def _around(padded, size, sums):  # type: ignore[no-untyped-def]
    """sums[c] = padded[c] + ... + padded[c + size - 1], for an odd size: four at a time, or two."""
    C, two, three = np.uint64(len(sums)), np.uint64(2), np.uint64(3)
    for c in range(C):
        sums[c] = padded[c]
    for four in range(np.uint64((size - 1) // 4)):
        at = np.uint64(4) * four + np.uint64(1)
        for c in range(C):
            d = at + c
            sums[c] += padded[d] + padded[d + np.uint64(1)] + padded[d + two] + padded[d + three]
    if size % 4 == 3:
        at = np.uint64(size) - two
        for c in range(C):
            sums[c] += padded[at + c] + padded[at + c + np.uint64(1)]


@compiled
def pooled_gradient(x, dy, where, side, stride, padding, padded, dx, sums, dw, db):  # type: ignore[no-untyped-def]
    """Gradients dw [out, in, kh, kw], db [out] of a convolution of x [B, H, W, in] that is pooled.

    dy [B, h, w, out] is the gradient after pooling. An image at a time is laid in `padded`, a row
    in a row, and its gradient before pooling in dx [1, h side, w side, out]; both have zeros
    around, dx in its last dimension but one, so that places come by eights.
    `sums` [kh, kw in, out] is memory. All are used again as they are left here.
    """
    before, high, wide = dw.shape[1:]
    sums[:] = zero
    db[:] = zero
    for b in range(len(x)):
        unpool(dy[b : b + 1], where[b : b + 1], side, dx)
        _lay(x[b], padding, padded)
        for row in dy[b]:
            for given in row:
                for o in range(len(db)):
                    db[o] += given[o]
        for i in range(dx.shape[1]):
            for u in range(high):
                _add_products(padded[i * stride[0] + u], stride[1] * before, dx[0, i], sums[u])
    for o in range(len(dw)):
        for u in range(high):
            for v in range(wide):
                for c in range(before):
                    dw[o, c, u, v] = sums[u, v * before + c, o]


@compiled
def _lay(image, padding, padded):  # type: ignore[no-untyped-def]
    """Copy an image [H, W, in] into zeros, one row [W in] into each row."""
    H, W, before = image.shape
    for u in range(H):
        for v in range(W):
            for c in range(before):
                padded[padding[0] + u, (padding[1] + v) * before + c] = image[u, v, c]


@compiled
def _add_products(line, by, g, sums):  # type: ignore[no-untyped-def]
    """sums[r] += line[r] g[0] + line[r + by] g[1] + ..., for sums [kw in, out] and g [W, out]."""
    for j in range(0, len(g), EIGHT):
        for r in range(len(sums)):
            p = j * by + r
            a0, a1, a2, a3 = line[p], line[p + by], line[p + 2 * by], line[p + 3 * by]
            p += 4 * by
            a4, a5, a6, a7 = line[p], line[p + by], line[p + 2 * by], line[p + 3 * by]
            for o in range(sums.shape[1]):
                sums[r, o] += (
                    a0 * g[j, o]
                    + a1 * g[j + 1, o]
                    + a2 * g[j + 2, o]
                    + a3 * g[j + 3, o]
                    + a4 * g[j + 4, o]
                    + a5 * g[j + 5, o]
                    + a6 * g[j + 6, o]
                    + a7 * g[j + 7, o]
                )
