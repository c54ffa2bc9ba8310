"""Every reader of data answers mutated bytes with a dataset or with its own error that names them.

COTERIE_MUTATIONS=30000 python -m pytest tests/data/test_fuzz.py looks longer.
"""

import bz2
import gzip
import io
import json
import lzma
import os
import random
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from PIL import Image

from coterie.core.errors import DataError, PartitionError
from coterie.core.parquet import has_parquet, parquet_bytes
from coterie.data import cache
from coterie.data.archive import is_archive, unpack
from coterie.data.arrays import read_arrays
from coterie.data.celeba import find_celeba, read_celeba
from coterie.data.dataset import Dataset
from coterie.data.idx import read_idx_pairs
from coterie.data.leaf import read_leaf
from coterie.partition.file import from_file
from coterie.partition.values import Examples, Rule
from datafiles import idx_bytes, leaf_content, tree, write_celeba
from mutated import mutated, repacked

MUTATIONS = int(os.environ.get("COTERIE_MUTATIONS", "150"))
MOST_KB = 1 << 21  # of memory more than before
EXAMPLES = 30
Mutate = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True)
class Target:
    """Whole files, which of them is mutated and how, and what reads the folder that they are in."""

    files: dict[str, bytes]
    name: str
    read: Callable[[Path], object]
    mutate: Mutate = mutated
    refuses: bool = True


def peak_kb() -> int:
    """The most memory that this process has had, in kB, where Linux says it."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return int(status.partition("VmHWM:")[2].split()[0])


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


def targets() -> Iterator[tuple[str, Target]]:
    pair = {"images": images(), "labels": labels()}
    packed = {name: gzip.compress(content, mtime=0) for name, content in pair.items()}
    for name in pair:
        yield f"idx-{name}", Target(pair, name, idx)
        yield f"idx-{name}-gzipped", Target(packed, name, idx)
        yield f"idx-{name}-repacked", Target(pair, name, idx, repacked)
    json_file = leaf_bytes()
    yield "leaf", Target({"a.json": json_file}, "a.json", leaf)
    yield "leaf-gzipped", Target({"a.json": gzip.compress(json_file, mtime=0)}, "a.json", leaf)
    yield "leaf-repacked", Target({"a.json": json_file}, "a.json", leaf, repacked)
    npys = arrays()
    for name in npys:
        yield f"npy-{name[:-4]}", Target(npys, name, own)
    npz = {"a.npz": zipped(npys)}
    yield "npz", Target(npz, "a.npz", own)
    yield "npz-member", Target(npz, "a.npz", own, npz_of_mutated)
    lists = celeba_files()
    for name in ("identity_CelebA.txt", "list_attr_celeba.txt", "img_align_celeba/000004.jpg"):
        yield f"celeba-{Path(name).stem}", Target(lists, name, celeba)
    yield (
        "zip",
        Target({"archive": zipped({"a/b.txt": b"text" * 99, "c": b""})}, "archive", archive),
    )
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        tar = {"archive": tarred(form)}
        yield f"tar-{form}", Target(tar, "archive", archive)
        yield f"tar-{form}-summed", Target(tar, "archive", archive, with_checksums)
    for pack in (gzip.compress(tarred()), lzma.compress(tarred()), bz2.compress(tarred())):
        yield f"tar-packed-{pack[:2].hex()}", Target({"archive": pack}, "archive", archive)
    yield "tar-repacked", Target({"archive": tarred()}, "archive", archive, repacked)
    yield "partition-csv", Target({"who": partition_csv()}, "who", partition)
    if has_parquet():
        yield "partition-parquet", Target({"who": partition_parquet()}, "who", partition)
    kept = decoded()
    for name in kept:
        yield f"cache-{name}", Target(kept, name, opened, refuses=False)


TARGETS = dict(targets())


@pytest.mark.parametrize("name", TARGETS)
def test_a_mutated_file_is_read_or_refused_in_one_line_that_names_it(
    name: str, tmp_path: Path
) -> None:
    target = TARGETS[name]
    for path, content in target.files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    target.read(tmp_path)  # whole, it is read
    before, outcomes = peak_kb(), {"read": 0, "refused": 0}
    for number in range(MUTATIONS):
        content = target.mutate(target.files[target.name], random.Random(f"{name} {number}"))
        (tmp_path / target.name).write_bytes(content)
        try:
            target.read(tmp_path)
        except (DataError, PartitionError) as error:
            assert str(tmp_path) in str(error), number
            assert len(str(error).splitlines()) == 1, number
            outcomes["refused"] += 1
        except BaseException as error:
            error.add_note(f"{name}: mutation {number}")
            raise
        else:
            outcomes["read"] += 1
        assert peak_kb() - before < MOST_KB, number
    assert outcomes["refused"] > 0 or not target.refuses, outcomes
