"""CelebA in its official layout, made up: what is read, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coterie.core.errors import DataError
from coterie.data import load
from coterie.data.celeba import find_celeba, read_celeba
from datafiles import write_celeba


def test_celeba_in_its_official_layout_is_read_as_leaf_reads_it(tmp_path: Path) -> None:
    write_celeba(tmp_path, {2880: 6, 3: 5, 77: 4})
    x, y, users, names = read_celeba(find_celeba(tmp_path))
    assert x.shape == (11, 3, 84, 84)
    assert names == ("3", "2880")  # 77 has fewer than five pictures
    assert np.bincount(users).tolist() == [5, 6]
    lines = (tmp_path / "identity_CelebA.txt").read_text().split("\n")
    who = dict(line.split() for line in lines if line)
    kept = sorted((int(who[name]), name) for name in who if who[name] != "77")
    assert y.tolist() == [int(int(name[:6]) % 3 == 0) for _, name in kept]
    for i, (_, name) in enumerate(kept):
        with Image.open(tmp_path / "img_align_celeba" / name) as picture:
            expected = np.asarray(picture.resize((84, 84)).convert("RGB")).transpose(2, 0, 1)
        assert np.array_equal(x[i], expected)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        ("corrupt", r"000003\.jpg: not a whole JPEG"),
        ("cut", r"000003\.jpg: not a whole JPEG"),
        ("png", r"000003\.jpg: not a whole JPEG"),
        ("no image", r"identity_CelebA\.txt: names a picture that is not there, 000003\.jpg"),
        ("no identity", r"identity_CelebA\.txt: has no line for 999999\.jpg"),
        ("no attributes", r"list_attr_celeba\.txt: (says 10 pictures, has 9)"),
        ("strange identity", r"identity_CelebA\.txt: line 2 must be a picture and a number"),
        ("twice", r"identity_CelebA\.txt: line 11 names 000001\.jpg again"),
        ("strange value", r"list_attr_celeba\.txt: line 3 must be a picture and 40 times"),
        ("no header", r"list_attr_celeba\.txt: must begin with a count and 40 names"),
        ("long count", r"list_attr_celeba\.txt: must begin with a count and 40 names"),
        ("empty", r"list_attr_celeba\.txt: must begin with a count and 40 names"),
        ("binary", r"identity_CelebA\.txt: not a text file"),
        ("few", "nobody has 5 pictures or more"),
        ("no list", r"has no identity_CelebA\.txt in it"),
        ("no folder", "has no img_align_celeba in it; img_align_celeba is a folder"),
    ],
)
def test_celeba_that_does_not_fit_together_is_refused(
    tmp_path: Path, spoil: str, says: str
) -> None:
    write_celeba(tmp_path, dict.fromkeys(range(3), 3) | {9: 1} if spoil == "few" else {1: 5, 2: 5})
    picture = tmp_path / "img_align_celeba" / "000003.jpg"
    identities, attributes = tmp_path / "identity_CelebA.txt", tmp_path / "list_attr_celeba.txt"
    who, what = identities.read_text(), attributes.read_text()
    if spoil == "corrupt":
        picture.write_bytes(b"not a picture")
    elif spoil == "cut":
        picture.write_bytes(picture.read_bytes()[:300])
    elif spoil == "png":
        Image.new("RGB", (178, 218)).save(picture, format="PNG")
    elif spoil == "no image":
        picture.unlink()
    elif spoil == "no identity":
        picture.with_name("999999.jpg").write_bytes(picture.read_bytes())
    elif spoil == "no attributes":
        attributes.write_text(what[: what.rstrip().rindex("\n") + 1])
    elif spoil == "strange identity":
        identities.write_text(who.replace("000002.jpg ", "000002.jpg x"))
    elif spoil == "twice":
        identities.write_text(who + "000001.jpg 1\n")
    elif spoil == "strange value":
        attributes.write_text(what.replace("000001.jpg -1", "000001.jpg -1 0"))
    elif spoil == "no header":
        attributes.write_text(what.partition("\n")[2])
    elif spoil == "long count":
        attributes.write_text("9" * 5000 + what)
    elif spoil == "empty":
        attributes.write_text("")
    elif spoil == "binary":
        identities.write_bytes(b"\xff\xfe\x00")
    elif spoil == "no list":
        identities.unlink()
    elif spoil == "no folder":
        (tmp_path / "img_align_celeba").rename(tmp_path / "pictures")
    with pytest.raises(DataError, match=says) as caught:
        read_celeba(find_celeba(tmp_path))
    assert "\n" not in str(caught.value)


def test_pictures_are_bytes_where_nothing_can_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "file"))
    write_celeba(tmp_path / "celeba", {1: 5, 2: 5})
    assert load("celeba", tmp_path / "celeba").x.dtype == np.uint8


def test_pictures_behind_a_link_are_found(tmp_path: Path) -> None:
    whole = write_celeba(tmp_path / "whole", {1: 5})
    (whole / "img_align_celeba").rename(tmp_path / "elsewhere")
    (whole / "img_align_celeba").symlink_to(tmp_path / "elsewhere")
    assert len(find_celeba(whole)) == 7


def test_links_that_lead_back_are_followed_once(tmp_path: Path) -> None:
    source = write_celeba(tmp_path / "celeba", {1: 5})
    plain = find_celeba(source)
    for name in ("itself", "and again"):
        (source / name).symlink_to(source)
        (source / "img_align_celeba" / name).symlink_to(source)
    assert find_celeba(source) == plain
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "there").symlink_to(source)
    assert len(find_celeba(tmp_path / "linked")) == len(plain)
