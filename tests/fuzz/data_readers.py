"""Every reader of data: pictures, texts, arrays, archives, partitions, and what a cache keeps."""

import bz2
import gzip
import io
import json
import lzma
import random
import shutil
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from coterie.core.parquet import has_parquet, parquet_bytes
from coterie.data import cache
from coterie.data.archive import is_archive, unpack
from coterie.data.arrays import read_arrays
from coterie.data.asked import Asked
from coterie.data.celeba import find_celeba, read_celeba
from coterie.data.cifar import find_cifar10, find_cifar100, read_cifar10, read_cifar100
from coterie.data.dataset import Dataset, in_memory
from coterie.data.heart import find_heart, read_heart
from coterie.data.idx import read_idx_pairs
from coterie.data.images import find_images, read_images
from coterie.data.leaf import read_leaf
from coterie.data.shakespeare import find_shakespeare, read_shakespeare
from coterie.data.table import find_table, read_table
from coterie.partition.file import from_file
from coterie.partition.values import Examples, Rule
from datafiles import (
    HEART,
    PLAY,
    TABLE,
    cifar10_files,
    cifar100_files,
    idx_bytes,
    leaf_content,
    pictures,
    tar_gz,
    tree,
    write_celeba,
)
from fuzz.mutate import mutated, repacked
from fuzz.worker import Reader

EXAMPLES = 30


def images() -> bytes:
    rng = np.random.default_rng(0)
    return idx_bytes(rng.integers(0, 256, (EXAMPLES, 5, 4), dtype=np.uint8))


def labels() -> bytes:
    return idx_bytes((np.arange(EXAMPLES) % 10).astype(np.uint8))


def idx(folder: Path) -> object:
    return read_idx_pairs([folder / "images", folder / "labels"], 10)


def leaf_bytes() -> bytes:
    content = leaf_content({"ann": [0, 61], "bob": [3], "nobody": []})
    for user in content["user_data"].values():
        user["x"] = [row[:6] for row in user["x"]]
    return json.dumps(content).encode()


def leaf(folder: Path) -> object:
    *_, names, _ = found = read_leaf([folder / "a.json"], 62, (1, 2, 3))
    return found, used(names)


def used(names: Iterable[str]) -> bytes:
    """What is read is written somewhere later."""
    return "\n".join(names).encode()


def own(folder: Path) -> object:
    """Read one's own arrays."""
    packed = folder / "a.npz"
    files = [packed] if packed.exists() else [folder / name for name in arrays()]
    return used(read_arrays(files).user_names)


def arrays() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    made = {
        "x": rng.normal(size=(EXAMPLES, 4)),
        "y": np.arange(EXAMPLES) % 3,
        "user": np.array([f"user {i % 4}" for i in range(EXAMPLES)]),
        "test": np.arange(EXAMPLES) > 20,
    }
    packed: dict[str, bytes] = {}
    for name, array in made.items():
        file = io.BytesIO()
        np.save(file, array)
        packed[f"{name}.npy"] = file.getvalue()
    return packed


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return file.getvalue()


def npz_of_mutated(content: bytes, rng: random.Random) -> bytes:
    """Mutate a member and pack it anew, so that its checksum is right."""
    members, name = arrays(), rng.choice(("x.npy", "y.npy", "user.npy", "test.npy"))
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    return zipped(members | {name: mutated(members[name], rng)}, method)


def tarred(form: int = tarfile.PAX_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        for name in ("folder/é.bin", f"folder/{'long' * 40}", "plain"):
            info = tarfile.TarInfo(name)
            info.size = 700
            archive.addfile(info, io.BytesIO(bytes(range(7)) * 100))
    return file.getvalue()


def with_checksums(content: bytes, rng: random.Random) -> bytes:
    """Mutate a tar and make the sums of its headers right again, where they are."""
    changed = bytearray(mutated(content, rng))
    for at in range(0, len(changed) - 511, 512):
        if changed[at + 257 : at + 262] == b"ustar":
            changed[at + 148 : at + 156] = b" " * 8
            changed[at + 148 : at + 156] = b"%06o\0 " % sum(changed[at : at + 512])
    return bytes(changed)


def archive(folder: Path) -> None:
    is_archive(folder / "archive")
    try:
        unpack(folder / "archive", folder / "unpacked", max_bytes=1 << 20, max_files=64)
    finally:
        shutil.rmtree(folder / "unpacked", ignore_errors=True)


def celeba_files() -> dict[str, bytes]:
    with TemporaryDirectory() as name:
        folder = write_celeba(Path(name) / "celeba", {1: 5, 7: 6, 3: 2})
        for picture in (folder / "img_align_celeba").iterdir():
            Image.linear_gradient("L").resize((12, 10)).convert("RGB").save(picture)
        return {path: content for path, content in tree(folder).items() if content is not None}


def celeba(folder: Path) -> object:
    return read_celeba(find_celeba(folder))


def cifar10(folder: Path) -> object:
    packed = folder / "c.tar.gz"
    found = find_cifar10(packed if packed.exists() else folder)
    return read_cifar10(found, in_memory, lambda done, of: None)


def cifar100(folder: Path) -> object:
    return read_cifar100(find_cifar100(folder), in_memory, lambda done, of: None)


def in_folders(folder: Path) -> object:
    packed = folder / "p.tar.gz"
    return read_images(find_images(packed if packed.exists() else folder), side=4)


def plays(folder: Path) -> object:
    return used(read_shakespeare(find_shakespeare(folder), 4).user_names)


def heart(folder: Path) -> object:
    return read_heart(find_heart(folder))


def table(folder: Path) -> object:
    asked = Asked(target=("bought",), user="site", missing="mean")
    return used(read_table(find_table(folder), asked).user_names)


def table_parquet() -> bytes:
    return parquet_bytes(
        {
            "age": (int, [31, 42, None, 23]),
            "city": (str, ["Rome", "Oslo", "Rome", "Bonn"]),
            "site": (str, ["a", "b", "a", "c"]),
            "bought": (bool, [True, False, False, True]),
        }
    )


def partition(folder: Path) -> object:
    examples = Examples(np.arange(EXAMPLES) % 3)
    rule = Rule("file", None, None, file=str(folder / "who"))
    dealt = from_file(examples, rule, np.random.default_rng(0))
    return used((*dealt.names, *dealt.edge_names))


def partition_csv() -> bytes:
    rows = [f"{i},phone-{i % 4},site-{i % 2}" for i in range(EXAMPLES)]
    return "\n".join(["example,node,edge", *rows, ""]).encode()


def partition_parquet() -> bytes:
    return parquet_bytes(
        {
            "example": (int, list(range(EXAMPLES))),
            "node": (str, [f"phone-{i % 4}" for i in range(EXAMPLES)]),
            "edge": (str, [f"site-{i % 2}" for i in range(EXAMPLES)]),
        }
    )


def decoded() -> dict[str, bytes]:
    """The arrays of a cache, as they are on disk."""
    n = np.arange(EXAMPLES)
    data = Dataset("d", np.zeros((len(n), 1, 2, 2), np.uint8), n % 3, 3, n % 2, ("a", "b"), n > 20)
    with TemporaryDirectory() as name:
        cache._save(data, Path(name))
        return {path.name: path.read_bytes() for path in sorted(Path(name).iterdir())}


def opened(folder: Path) -> object:
    found = cache._open(folder)
    if found is not None:  # what is opened is used, as a run would
        np.asarray(found.x).sum()
        found.take(np.arange(2))
    return found


def data_readers() -> Iterator[tuple[str, Reader]]:
    """Make them all, each with its files and which of them is changed."""
    pair = {"images": images(), "labels": labels()}
    packed = {name: gzip.compress(content, mtime=0) for name, content in pair.items()}
    for name in pair:
        yield f"IDX, {name}", Reader(pair, idx, (name,))
        yield f"IDX, {name}, gzip", Reader(packed, idx, (name,))
        yield f"IDX, {name}, gzip inside", Reader(pair, idx, (name,), mutate=repacked)
    json_file = leaf_bytes()
    yield "LEAF", Reader({"a.json": json_file}, leaf)
    yield "LEAF, gzip", Reader({"a.json": gzip.compress(json_file, mtime=0)}, leaf)
    yield "LEAF, gzip inside", Reader({"a.json": json_file}, leaf, mutate=repacked)
    npys = arrays()
    for name in npys:
        yield name, Reader(npys, own, (name,))
    npz = {"a.npz": zipped(npys)}
    yield ".npz", Reader(npz, own)
    yield ".npz inside", Reader(npz, own, mutate=npz_of_mutated)
    lists = celeba_files()
    for name in ("identity_CelebA.txt", "list_attr_celeba.txt", "img_align_celeba/000004.jpg"):
        yield f"CelebA, {Path(name).stem}", Reader(lists, celeba, (name,))
    colours = cifar10_files(2)
    yield "CIFAR-10", Reader(colours, cifar10)
    yield "CIFAR-10, archive", Reader({"c.tar.gz": tar_gz(colours)}, cifar10)
    yield "CIFAR-100", Reader(cifar100_files(2), cifar100)
    shown = pictures(2)
    yield "pictures", Reader(shown, in_folders)
    yield "pictures, archive", Reader({"p.tar.gz": tar_gz(shown)}, in_folders)
    yield "plays", Reader({"input.txt": PLAY.encode()}, plays)
    yield "plays, gzip", Reader({"input.txt.gz": gzip.compress(PLAY.encode(), mtime=0)}, plays)
    yield "heart disease", Reader(HEART, heart)
    yield "table, CSV", Reader({"t.csv": TABLE}, table)
    if has_parquet():
        yield "table, Parquet", Reader({"t.parquet": table_parquet()}, table)
    yield "zip", Reader({"archive": zipped({"a/b.txt": b"text" * 99, "c": b""})}, archive)
    for form, number in {"pax": tarfile.PAX_FORMAT, "gnu": tarfile.GNU_FORMAT}.items():
        tar = {"archive": tarred(number)}
        yield f"tar {form}", Reader(tar, archive)
        yield f"tar {form}, right sums", Reader(tar, archive, mutate=with_checksums)
    packs = {"gzip": gzip.compress(tarred()), "xz": lzma.compress(tarred())}
    for kind, pack in (packs | {"bzip2": bz2.compress(tarred())}).items():
        yield f"tar, {kind}", Reader({"archive": pack}, archive)
    yield "tar, gzip inside", Reader({"archive": tarred()}, archive, mutate=repacked)
    yield "partition, CSV", Reader({"who": partition_csv()}, partition)
    if has_parquet():
        yield "partition, Parquet", Reader({"who": partition_parquet()}, partition)
    kept = decoded()
    for name in kept:
        yield f"cache, {name}", Reader(kept, opened, (name,))
