"""How long loading and dealing data take here.

Usage: python benchmarks/data.py [FEMNIST FOLDER] [NUMBER OF CELEBA PICTURES]

Loads from a folder (data.path) are timed with an empty cache and again, and once more after
`coterie data import`. CelebA's layout is made up of so many JPEGs of its size (202,599 in the
original, which need 8 GB of disk in all). Partitions of 70,000 examples on 300 nodes and of
1,000,000 on 10,000 are each dealt once, in a process of their own for the memory.
"""

import io
import multiprocessing
import os
import platform
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from gzip import compress
from pathlib import Path

import numpy as np

from coterie.data import load
from coterie.data.sources import import_files
from coterie.partition import PARTITIONS, Examples, Rule, make_partition


def timed(work: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def write_mnist(folder: Path) -> Path:
    """Write 70,000 pictures of noise in half of the pixels, as .gz of about MNIST's size."""
    rng = np.random.default_rng(0)
    for part, n in (("train", 60_000), ("t10k", 10_000)):
        x = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        x[:, ::2] = 0
        images = struct.pack(">BBBB3I", 0, 0, 8, 3, *x.shape) + x.tobytes()
        labels = (
            struct.pack(">BBBBI", 0, 0, 8, 1, n) + (np.arange(n) % 10).astype(np.uint8).tobytes()
        )
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(compress(images, 6))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(compress(labels, 6))
    return folder


def write_celeba(folder: Path, pictures: int) -> Path:
    """Write smooth pictures with some noise, ten of each celebrity, in the official layout."""
    from PIL import Image

    (folder / "img_align_celeba").mkdir(parents=True)
    rng = np.random.default_rng(0)
    encoded = []
    for _ in range(50):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 10, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((178, 218)), dtype=np.int16)
        noisy = np.clip(smooth + rng.integers(-12, 13, smooth.shape), 0, 255)
        buffer = io.BytesIO()
        Image.fromarray(noisy.astype(np.uint8)).save(buffer, "JPEG", quality=85)
        encoded.append(buffer.getvalue())
    names = [f"{i:06}.jpg" for i in range(1, pictures + 1)]
    for i, name in enumerate(names):
        (folder / "img_align_celeba" / name).write_bytes(encoded[i % 50])
    lines = [f"{name} {i // 10}\n" for i, name in enumerate(names)]
    (folder / "identity_CelebA.txt").write_text("".join(lines))
    words = [*(f"Attribute_{i}" for i in range(39)), "Smiling"]
    smiling = ["".join([" -1"] * 39) + (" -1" if i % 2 else "  1") for i in range(2)]
    lines = [f"{name}{smiling[i % 2]}\n" for i, name in enumerate(names)]
    (folder / "list_attr_celeba.txt").write_text(
        f"{pictures}\n{' '.join(words)}\n" + "".join(lines)
    )
    return folder


def deal(kind: str, examples: int, classes: int, nodes: int) -> tuple[float, float]:
    """Seconds and peak memory (MiB) of one partition, with as many users as nodes."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, examples)
    users = rng.permutation(np.arange(examples) % nodes)
    rule = Rule(kind, None if kind == "natural" else nodes, nodes // 10)
    seconds = timed(lambda: make_partition(rule, Examples(y, users), rng))
    return seconds, peak_mib()


def peak_mib() -> float:
    """Peak memory of this process; the kernel's own count, as getrusage's includes the parent's."""
    status = Path("/proc/self/status")
    if not status.exists():
        return float("nan")
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def main() -> None:
    """Print the table."""
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["COTERIE_DATA"] = f"{scratch}/cache"
        folder = Path(scratch) / "mnist"
        folder.mkdir()
        sources = {"mnist-o": write_mnist(folder)}
        for word in sys.argv[1:]:
            if word.isdigit():
                sources["celeba"] = write_celeba(Path(scratch) / "celeba", int(word))
            else:
                sources["femnist"] = Path(word)
        print(f"\n{'load':16} {'examples':>9} {'first s':>8} {'again s':>8} {'imported s':>11}")
        for name, path in sources.items():
            first = timed(lambda name=name, path=path: load(name, path))  # type: ignore[misc]
            again = timed(lambda name=name, path=path: load(name, path))  # type: ignore[misc]
            import_files(name, path, trust=True, progress=lambda what, done, of: None)
            kept = timed(lambda name=name: load(name))  # type: ignore[misc]
            size = len(load(name).y)
            print(f"{name:16} {size:>9,} {first:>8.2f} {again:>8.3f} {kept:>11.3f}")
    sizes = ((70_000, 10, 300), (1_000_000, 62, 10_000))
    heads = "".join(f" {f'{e:,} on {n:,}: s':>24} {'peak MiB':>9}" for e, _, n in sizes)
    print(f"\n{'partition':16}{heads}")
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for kind in (k for k in PARTITIONS if k != "file"):
            found = [pool.apply(deal, (kind, *size)) for size in sizes]
            print(f"{kind:16}" + "".join(f" {s:>24.2f} {mb:>9.0f}" for s, mb in found))


if __name__ == "__main__":
    main()
