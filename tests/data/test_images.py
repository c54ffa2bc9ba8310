"""Folders of pictures: what is read, and what is refused."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coterie.config.factories import load_dataset
from coterie.config.files import make_config
from coterie.core.errors import ConfigError, DataError
from coterie.data.dataset import Dataset
from coterie.data.images import find_images, read_images
from datafiles import picture_bytes, pictures, tar_gz, write_all


def read(path: Path, side: int = 0) -> Dataset:
    return read_images(find_images(path), side)


def decoded(content: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(content)) as picture:
        return np.asarray(picture.convert("RGB")).transpose(2, 0, 1)


def test_classes_are_the_folders_of_train_in_the_order_of_their_names(tmp_path: Path) -> None:
    files = pictures(3)
    data = read(write_all(tmp_path, files))
    assert data.x.shape == (8, 3, 5, 6)
    assert data.y.tolist() == [0, 0, 0, 1, 1, 1, 0, 1]
    assert data.test is not None
    assert data.test.tolist() == [False] * 6 + [True] * 2
    names = [n for n in sorted(files) if n[:5] == "train"] + ["test/cat/0.jpg", "test/dog/0.jpg"]
    for x, name in zip(data.x, names, strict=True):
        assert np.array_equal(x, decoded(files[name]))


def test_an_archive_of_them_is_read_as_the_folder_is(tmp_path: Path) -> None:
    folder = write_all(tmp_path / "folder", pictures())
    archive = tmp_path / "mine.tar.gz"
    for top in ("", "mine/"):
        inside = {f"{top}{name}": content for name, content in reversed(pictures().items())}
        archive.write_bytes(tar_gz(inside | {f"{top}readme.txt": b"mine"}))
        plain, packed = read(folder), read(archive)
        assert np.array_equal(plain.x, packed.x)
        assert np.array_equal(plain.y, packed.y)


def test_without_a_test_folder_nothing_is_marked_for_tests(tmp_path: Path) -> None:
    folder = write_all(tmp_path, {n: c for n, c in pictures().items() if n[:5] == "train"})
    assert read(folder).test is None


def test_pictures_are_grey_where_the_first_is_and_all_must_be_then(tmp_path: Path) -> None:
    grey = {n: picture_bytes(i, mode="L") for i, n in enumerate(pictures()) if n[-3:] == "png"}
    folder = write_all(tmp_path, grey)
    data = read(folder)
    assert data.x.shape == (10, 1, 5, 6)
    with Image.open(folder / "train/cat/0.png") as picture:
        assert np.array_equal(data.x[0, 0], np.asarray(picture))
    (folder / "train/dog/4.png").write_bytes(picture_bytes(1))
    with pytest.raises(DataError, match=r"dog/4\.png: is in colour, and the first picture is grey"):
        read(folder)
    (folder / "train/cat/0.png").write_bytes(picture_bytes(1))
    assert read(folder).x.shape == (10, 3, 5, 6)


def test_pictures_of_several_sizes_are_resized_or_refused(tmp_path: Path, cache: Path) -> None:
    files = pictures() | {"train/dog/3.png": picture_bytes(9, (20, 10))}
    folder = write_all(tmp_path / "p", files)
    with pytest.raises(DataError, match=r"dog/3\.png: has 10x20 pixels, the first picture 5x6"):
        read(folder)
    what = {"data": {"name": "images", "path": str(folder), "side": 4}}
    data = load_dataset(make_config(what))
    assert data.x.shape == (12, 3, 4, 4)
    with Image.open(folder / "train/dog/3.png") as picture:
        resized = np.asarray(picture.convert("RGB").resize((4, 4))).transpose(2, 0, 1)
    assert np.array_equal(data.x[8], resized)
    what["data"]["side"] = 8  # other arrays of the same files
    assert load_dataset(make_config(what)).x.shape == (12, 3, 8, 8)


def test_the_side_is_refused_where_no_picture_is_resized() -> None:
    with pytest.raises(ConfigError, match=r"data\.side is read with data\.name = 'images' only"):
        make_config({"data": {"side": 8}})


def _sixteen_bits() -> bytes:
    written = io.BytesIO()
    Image.fromarray(np.full((5, 6), 9, np.uint16)).save(written, format="PNG")
    return written.getvalue()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"train/dog/1.png": b"no picture"}, r"train/dog/1\.png: not a whole PNG"),
        ({"train/dog/1.png": picture_bytes(1)[:-30]}, r"train/dog/1\.png: not a whole PNG"),
        ({"train/dog/1.png": picture_bytes(1, form="JPEG")}, r"1\.png: not a whole PNG"),
        ({"train/dog/readme.md": b"# dogs"}, r"dog/readme\.md: must be a \.jpg, \.jpeg or \.png"),
        ({"train/cow/readme.md": b""}, r"cow/readme\.md: must be a \.jpg"),
        ({"train/loose.png": picture_bytes(1)}, r"loose\.png: must be a folder, named after"),
        ({"test/cow/1.png": picture_bytes(1)}, r"test/cow/1\.png: its class 'cow' is not in train"),
        ({"train/dog/1.png": _sixteen_bits()}, r"1\.png: its pixels are 'I;16'"),
    ],
)
def test_what_is_no_picture_of_a_class_is_refused(
    tmp_path: Path, changed: dict[str, bytes], says: str
) -> None:
    folder = write_all(tmp_path, pictures() | changed)
    with pytest.raises(DataError, match=says) as caught:
        read(folder)
    assert "\n" not in str(caught.value)


def test_folders_without_pictures_or_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no pictures in it; they must be in train/<class>"):
        find_images(tmp_path)
    (tmp_path / "train" / "cat").mkdir(parents=True)
    with pytest.raises(DataError, match="train/cat: has no pictures in it"):
        find_images(tmp_path)
    write_all(tmp_path, pictures(labels=["cat"]))
    with pytest.raises(DataError, match="all pictures are of one class, 'cat'"):
        read(tmp_path)
    (tmp_path / "file").write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"must be a folder with train/<class>/\*\.jpg, or its"):
        find_images(tmp_path / "file")


def test_a_picture_that_claims_too_many_pixels_is_not_decoded(tmp_path: Path) -> None:
    content = bytearray(picture_bytes(1))
    content[16:24] = (30_000).to_bytes(4, "big") * 2  # IHDR: width and height
    folder = write_all(tmp_path, pictures() | {"train/dog/1.png": bytes(content)})
    with pytest.raises(DataError, match=r"dog/1\.png: .*(too large|not a whole PNG)"):
        read(folder)
