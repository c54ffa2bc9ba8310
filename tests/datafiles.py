"""Files in the datasets' formats, made up by the tests."""

import gzip
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

FUZZ = settings(max_examples=200, deadline=None)
ATTRIBUTES = [f"Attribute_{i}" for i in range(40)]
ATTRIBUTES[31] = "Smiling"


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_mnist(folder: Path, sizes: tuple[int, int] = (50, 20), *, pack: bool = False) -> Path:
    """Four IDX files of random pictures whose labels count up."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for part, n in zip(("train", "t10k"), sizes, strict=True):
        contents = {
            f"{part}-images-idx3-ubyte": rng.integers(0, 256, (n, 28, 28), dtype=np.uint8),
            f"{part}-labels-idx1-ubyte": (np.arange(n) % 10).astype(np.uint8),
        }
        for name, array in contents.items():
            if pack:
                (folder / f"{name}.gz").write_bytes(gzip.compress(idx_bytes(array), mtime=0))
            else:
                (folder / name).write_bytes(idx_bytes(array))
    return folder


def leaf_content(users: dict[str, Sequence[int]], seed: int = 0) -> dict[str, Any]:
    """LEAF's JSON for users with the labels given, their pixels random."""
    rng = np.random.default_rng(seed)
    return {
        "users": list(users),
        "num_samples": [len(y) for y in users.values()],
        "user_data": {
            user: {"x": (rng.integers(0, 256, (len(y), 784)) / 255).tolist(), "y": list(y)}
            for user, y in users.items()
        },
    }


def write_leaf(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps(content).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def write_celeba(folder: Path, pictures_of: dict[int, int]) -> Path:
    """CelebA's official layout, line ends and spacing: so many pictures of each identity.

    The pictures are noise; every third is smiling.
    """
    images = folder / "img_align_celeba"
    images.mkdir(parents=True)
    identities, attributes = [], []
    owners = [who for who, count in pictures_of.items() for _ in range(count)]
    rng = np.random.default_rng(0)
    for number, who in enumerate(rng.permutation(owners), 1):
        name = f"{number:06}.jpg"
        noise = rng.integers(0, 256, (218, 178, 3), dtype=np.uint8)
        Image.fromarray(noise).save(images / name, quality=60)
        identities.append(f"{name} {who}\r\n")
        values = [1 if i == 31 and number % 3 == 0 else -1 for i in range(40)]
        first, *rest = values
        attributes.append(f"{name} {first}" + "".join(f" {v:2}" for v in rest) + "\r\n")
    (folder / "identity_CelebA.txt").write_bytes("".join(identities).encode())
    header = f"{len(owners)}\r\n" + " ".join(ATTRIBUTES) + " \r\n"
    (folder / "list_attr_celeba.txt").write_bytes((header + "".join(attributes)).encode())
    return folder


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """Strategy of a file's content with a few bytes replaced, and perhaps its end cut off."""

    def damage(changes: list[tuple[int, int]], keep: float) -> bytes:
        changed = bytearray(content)
        for at, value in changes:
            changed[at % len(changed)] = value
        return bytes(changed[: round(keep * len(changed))])

    changes = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4)
    return st.builds(damage, changes, st.one_of(st.just(1.0), st.floats(0, 1)))


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder: contents of files, None for folders."""
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() if p.is_file() else None
        for p in sorted(folder.rglob("*"))
    }
