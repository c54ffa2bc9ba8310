"""Files in the datasets' formats, made up by the tests."""

import gzip
import io
import json
import struct
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

PLAY = "ANN:\nab cd\n\nBOB:\nx\n\nANN:\ne\nd\n\nFirst Lord:\nxyzzy\n"
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


def cifar_bytes(labels: Sequence[Sequence[int]], seed: int = 0) -> bytes:
    """CIFAR's records: the bytes of labels of each, then random pixels."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (len(labels), 3 * 32 * 32), dtype=np.uint8)
    return b"".join(bytes(own) + row.tobytes() for own, row in zip(labels, pixels, strict=True))


def cifar10_files(each: int = 20) -> dict[str, bytes]:
    """The six files of CIFAR-10, with so many pictures in each, whose labels count up."""
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    labels = [[i % 10] for i in range(each)]
    return {name: cifar_bytes(labels, seed) for seed, name in enumerate(names)}


def cifar100_files(each: int = 100) -> dict[str, bytes]:
    """The two files of CIFAR-100: coarse and fine labels."""
    labels = [[i % 20, i % 100] for i in range(each)]
    names = ("train.bin", "test.bin")
    return {name: cifar_bytes(labels, seed) for seed, name in enumerate(names)}


def tar_gz(files: dict[str, bytes]) -> bytes:
    """A .tar.gz of files by name."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def picture_bytes(
    seed: int, size: tuple[int, int] = (6, 5), form: str = "PNG", mode: str = "RGB"
) -> bytes:
    """A picture of noise, of so many pixels in width and height."""
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    written = io.BytesIO()
    Image.fromarray(noise).convert(mode).save(written, format=form)
    return written.getvalue()


def pictures(each: int = 5, labels: Sequence[str] = ("cat", "dog")) -> dict[str, bytes]:
    """Pictures in train/<class>, so many of each, and one of each class in test."""
    places = [f"train/{label}/{i}.png" for label in labels for i in range(each)]
    places += [f"test/{label}/0.jpg" for label in labels]
    form = {".png": "PNG", ".jpg": "JPEG"}
    return {name: picture_bytes(i, form=form[name[-4:]]) for i, name in enumerate(places)}


HEART = {
    "processed.cleveland.data": b"63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0\n"
    b"67.0,1.0,4.0,160.0,286.0,0.0,2.0,108.0,1.0,1.5,2.0,3.0,3.0,2\n",
    "processed.hungarian.data": b"28,1,2,130,132,0,2,185,0,0,?,?,?,0\n"
    b"29,1,2,120,?,0,0,160,0,0,?,?,?,0\n30,0,1,170,237,0,1,170,0,0,?,?,6,1\n",
    "processed.switzerland.data": b"32,1,1,95,0,0,0,127,0,.7,1,?,?,1\n",
    "processed.va.data": b"63,1,4,140,260,0,1,112,1,3,2,?,?,2\n"
    b"44,1,4,130,209,0,1,127,0,0,?,?,?,0\n",
}
TABLE = b"""age,city,income,site,bought
31,Rome,2.5,a,yes
42,Oslo,1.5,b,no
58,Rome,3.5,a,no
23,Bonn,2.0,c,yes
"""


def write_all(folder: Path, files: dict[str, bytes]) -> Path:
    """Write files by name below a folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
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
