"""Where tensors are: what a device can do there, and when its results come to the host.

A device works on while the host goes on. It has to be waited for when a number of its is looked at,
so a round looks at none, and an evaluation at all of its numbers at once.
"""

import ctypes
from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core.arrays import Floats

Place = slice | Tensor  # of entries in an array
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h


def prepared(name: str) -> torch.device:
    """Return a device that rounds as a CPU does, and in the same way every time.

    By default, convolutions on a GPU keep 10 bits of every factor (TF32), and may be computed in
    another way in the next run. On a CPU, freed memory is kept.
    """
    device = torch.device(name)
    if device.type == "cuda":
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True
    if device.type == "cpu":
        _keep_pages()
    return device


def _keep_pages() -> None:
    """Let the C library keep what is freed, up to 256 MB, for the next batch asks for it again.

    glibc gives the top of its heap back to the system, and takes it anew page by page. Where there
    is no `mallopt`, nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(M_TRIM_THRESHOLD, 256 << 20)
    mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the most that it takes


def for_sums(device: torch.device) -> torch.device:
    """Return where sums are made in double precision: there, or on the CPU, as MPS has no doubles.

    >>> for_sums(torch.device("cuda")), for_sums(torch.device("mps"))
    (device(type='cuda'), device(type='cpu'))
    """
    return torch.device("cpu") if device.type == "mps" else device


def with_generators(device: torch.device) -> list[torch.device]:
    """Return the devices whose random numbers are put back, beside the CPU's."""
    return [device] if device.type == "cuda" else []


def wait_for(device: torch.device) -> None:
    """Wait until a device has done what it was told."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def set_apart(small: Tensor) -> Tensor:
    """Return a small result that may be kept while other batches are computed.

    torch would cut it out of the memory that this batch has freed, so that the next one has to take
    more: 5 MB for every 128 images of a convolutional network.
    """
    return torch.from_numpy(on_host(small).copy()) if small.device.type == "cpu" else small


class Together:
    """Results of many pieces in few arrays, made when the first piece shows their kinds.

    So none of them lies in the memory that a batch has freed (see set_apart), however many.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.arrays: list[Tensor] = []
        self._lock = Lock()

    def put(self, found: Sequence[Tensor], lengths: Sequence[int], at: Sequence[Place]) -> None:
        """Put a piece's results where they belong: each into an array of so many entries."""
        with self._lock:
            if not self.arrays:
                self.arrays = [
                    some.new_empty(n, *some.shape[1:])
                    for some, n in zip(found, lengths, strict=True)
                ]
        for array, place, some in zip(self.arrays, at, found, strict=True):
            array[place] = some


def on_host(array: Tensor) -> NDArray[Any]:
    """Return an array on the host; NumPy has no bfloat16, which become 32-bit floats.

    >>> on_host(torch.ones(2, dtype=torch.bfloat16)).dtype
    dtype('float32')
    """
    known = array.float() if array.dtype == torch.bfloat16 else array
    found: NDArray[Any] = known.cpu().numpy()
    return found


def to_host(found: Sequence[Tensor]) -> list[Floats]:
    """Bring vectors to the host as doubles, all of a device's at once.

    >>> [some.tolist() for some in to_host([torch.ones(2), torch.zeros(1)])]
    [[1.0, 1.0], [0.0]]
    """
    if any(some.device.type == "cpu" for some in found) or not found:
        return [some.cpu().double().numpy() for some in found]
    whole = on_host(torch.cat(list(found))).astype(np.float64, copy=False)
    return np.split(whole, np.cumsum([len(some) for some in found])[:-1])
