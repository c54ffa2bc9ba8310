"""Importing: the known is taken, the unknown refused, and nothing is half done."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from coterie.core.errors import DataError
from coterie.data import DATASETS, load, sources
from datafiles import leaf_content, tree, write_celeba, write_leaf, write_mnist
from known import as_folder, as_tar, as_zip, coterie, known, pin, quiet


@pytest.mark.parametrize("packed", [as_folder, as_zip, as_tar])
@pytest.mark.parametrize("gz", [True, False])
def test_known_files_are_imported_from_a_folder_or_archive_plain_or_gzipped(
    tmp_path: Path, pins: Path, packed: object, gz: bool
) -> None:
    assert callable(packed)
    pin(pins, "mnist-o", write_mnist(tmp_path / "original"))
    given = packed(write_mnist(tmp_path / "given", pack=gz), tmp_path / "archive")
    done = coterie("data", "import", "mnist-o", given)
    assert done.exit_code == 0, done.output
    assert "mnist-o: 70 examples of 1x28x28 pixels" in done.output
    data = load("mnist-o")
    assert data.x.shape == (70, 1, 28, 28)
    said = coterie("data", "info", "mnist-o").output
    assert "70 examples" in said
    assert "20 of them are its official test part" in said


def test_an_unknown_file_is_refused_unless_trusted(tmp_path: Path, cache: Path) -> None:
    given = write_mnist(tmp_path / "given")
    done = coterie("data", "import", "mnist-o", given)
    assert done.exit_code == 2
    assert done.output.count("\n") == 1
    assert "train-images-idx3-ubyte: sha256 is" in done.output
    assert "it must be ba891046e6505d7a..." in done.output
    assert "--trust" in done.output
    assert not cache.exists()
    assert coterie("data", "import", "mnist-o", given, "--trust").exit_code == 0
    assert len(load("mnist-o").y) == 70


def test_a_bad_import_leaves_the_cache_as_it_was(tmp_path: Path, cache: Path) -> None:
    good = write_leaf(tmp_path / "good" / "a.json", leaf_content({"u": [1, 2, 3]})).parent
    assert coterie("data", "import", "femnist", good, "--trust").exit_code == 0
    load("femnist")
    before = tree(cache)
    bad = leaf_content({"u": [1, 2]}) | {"num_samples": [3]}
    cases = {
        "lies": write_leaf(tmp_path / "lies" / "a.json", bad).parent,
        "empty": tmp_path / "empty",
        "nowhere": tmp_path / "nowhere",
        "file": tmp_path / "lies" / "a.json",
        "escape": tmp_path / "escape.zip",
        "cut": tmp_path / "cut.tar",
    }
    cases["empty"].mkdir()
    with zipfile.ZipFile(cases["escape"], "w") as archive:
        archive.writestr("../../a.json", "{}")
    cases["cut"].write_bytes(as_tar(good, tmp_path / "whole.tar").read_bytes()[:-60])
    for name, path in cases.items():
        done = coterie("data", "import", "femnist", path, "--trust")
        assert done.exit_code == 2, name
        assert done.output.startswith("coterie: ")
        assert done.output.count("\n") == 1
        assert str(path) in done.output or "a.json" in done.output
        assert tree(cache) == before
    assert load("femnist").y.tolist() == [1, 2, 3]


def test_ctrl_c_while_files_are_swapped_brings_the_old_ones_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for labels in ([1, 2, 3], [4, 5]):
        write_leaf(tmp_path / str(len(labels)) / "a.json", leaf_content({"u": labels}))
    sources.import_files("femnist", tmp_path / "3", trust=True, progress=quiet)
    rename, renamed = Path.rename, []

    def interrupted(path: Path, target: Path) -> Path:
        if path.name == "source" and path.parent.name.startswith(".new-"):
            renamed.append(target)
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sources.import_files("femnist", tmp_path / "2", trust=True, progress=quiet)
    assert len(renamed) == 1
    assert load("femnist").y.tolist() == [1, 2, 3]


def test_files_are_checked_after_they_are_copied(tmp_path: Path, pins: Path) -> None:
    given = write_mnist(tmp_path / "given")
    pin(pins, "mnist-o", given)
    labels = given / "train-labels-idx1-ubyte"

    def change(what: str, done: int, of: int) -> None:
        if what == "copying":
            labels.write_bytes(labels.read_bytes()[:-1] + b"\1")

    with pytest.raises(DataError, match=r"given/train-labels-idx1-ubyte: sha256 is"):
        sources.import_files("mnist-o", given, trust=False, progress=change)


def test_known_files_under_each_others_names_are_refused(tmp_path: Path, pins: Path) -> None:
    given = write_mnist(tmp_path / "given")
    pin(pins, "mnist-o", given)
    for kind in ("images-idx3", "labels-idx1"):
        test, train = (given / f"{part}-{kind}-ubyte" for part in ("t10k", "train"))
        train.write_bytes(test.read_bytes())
    with pytest.raises(DataError, match="train-images-idx3-ubyte: sha256 is"):
        sources.import_files("mnist-o", given, trust=False, progress=quiet)


def test_the_files_of_another_dataset_are_recognised(tmp_path: Path, pins: Path) -> None:
    given = write_mnist(tmp_path / "given")
    pin(pins, "mnist-f", given)
    with pytest.raises(
        DataError, match="it is a file of mnist-f: coterie data import mnist-f PATH"
    ):
        sources.import_files("mnist-o", given, trust=False, progress=quiet)


def test_what_was_trusted_is_marked_and_can_be_fetched_again(
    tmp_path: Path, pins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        coterie("data", "import", "mnist-o", write_mnist(tmp_path / "a"), "--trust").exit_code == 0
    )
    assert "trusted, not checked" in coterie("data", "list").output
    assert "imported with --trust" in coterie("data", "info", "mnist-o").output
    folder = write_mnist(tmp_path / "debian", (30, 20))
    pin(pins, "mnist-o", folder)
    known(monkeypatch, debian=("dataset-mnist", folder))
    assert "imported with --trust" in coterie("data", "fetch", "mnist-o").output
    assert coterie("data", "fetch", "mnist-o", "--again").exit_code == 0
    assert len(load("mnist-o").y) == 50
    assert "(trusted" not in coterie("data", "list").output


def test_an_import_takes_the_place_of_the_one_before(tmp_path: Path, cache: Path) -> None:
    for labels in ([1, 2, 3], [4, 5]):
        folder = tmp_path / f"given{len(labels)}"
        write_leaf(folder / f"{len(labels)}.json", leaf_content({"u": labels}))
        assert coterie("data", "import", "femnist", folder, "--trust").exit_code == 0
        assert load("femnist").y.tolist() == labels
    decoded = [p.name for p in (cache / "femnist" / "decoded").iterdir()]
    assert len(decoded) == 1  # the old arrays are gone with the old files


def test_celebas_pictures_are_taken_out_of_their_official_archive(
    tmp_path: Path, pins: Path
) -> None:
    given = write_celeba(tmp_path / "given", {1: 5, 2: 6})
    official = tmp_path / "CelebA"
    (official / "Img").mkdir(parents=True)
    (official / "Anno").mkdir()
    for name in ("identity_CelebA.txt", "list_attr_celeba.txt"):
        (given / name).rename(official / "Anno" / name)
    with zipfile.ZipFile(official / "Img" / "img_align_celeba.zip", "w") as archive:
        for path in sorted((given / "img_align_celeba").iterdir()):
            archive.write(path, f"img_align_celeba/{path.name}")
    with pytest.raises(DataError, match="sha256 is"):
        sources.import_files("celeba", official, trust=False, progress=quiet)
    pin(pins, "celeba", official / "Img")
    with pytest.raises(DataError, match=r"identity_CelebA\.txt: sha256 is"):
        sources.import_files("celeba", official, trust=False, progress=quiet)
    pin(pins, "celeba", official)
    data = sources.import_files("celeba", official, trust=False, progress=quiet)
    assert data.x.shape == (11, 3, 84, 84)
    whole = as_zip(official, tmp_path / "everything.zip")
    assert len(sources.import_files("celeba", whole, trust=True, progress=quiet).y) == 11


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["fetch", "celeba"], "celeba cannot be fetched by a program"),
        (["fetch", "femnist"], "make its JSON with LEAF"),
        (["fetch", "mnist-f-mini"], "embedded in the package"),
        (["fetch", "mnist"], "unknown dataset 'mnist'; did you mean 'mnist-"),
        (["import", "arrays", "."], "your own arrays need no import"),
        (["info", "mnist-o"], "coterie data fetch mnist-o"),
        (["fetsch", "x"], "unknown command 'fetsch'; did you mean 'fetch'?"),
    ],
)
def test_what_cannot_be_had_is_said_in_one_line(words: list[str], says: str) -> None:
    done = coterie("data", *words)
    assert done.exit_code == 2
    assert done.output.startswith("coterie: ")
    assert done.output.count("\n") == 1
    assert says in done.output


def test_every_pinned_list_is_one_sum_and_name_a_line() -> None:
    listed = {known.pins for known in DATASETS.values() if known.pins}
    assert {path.stem for path in sources.PINS.glob("*.sha256")} == listed
    for path in sources.PINS.glob("*.sha256"):
        for line in path.read_text().splitlines():
            digest, name = line.split()
            assert len(bytes.fromhex(digest)) == 32
            assert name


def test_the_list_of_datasets_says_where_each_is(tmp_path: Path, cache: Path) -> None:
    write_leaf(tmp_path / "leaf" / "a.json", leaf_content({"u": [1]}))
    assert coterie("data", "import", "femnist", tmp_path / "leaf", "--trust").exit_code == 0
    said = coterie("data", "list").output
    assert str(cache / "femnist" / "source") in said
    lines = {line.split()[0]: line for line in said.splitlines() if line}
    assert lines["mnist-f-mini"].endswith("embedded")
    assert lines["celeba"].endswith("import")
    assert lines["mnist-o"].endswith("fetch")


def test_info_shows_the_label_histogram_and_the_users(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "mine.npz",
        x=np.zeros((6, 4), np.float32),
        y=np.array([0, 0, 0, 1, 1, 2]),
        user=np.array(["a", "a", "a", "b", "b", "b"]),
    )
    said = coterie("data", "info", tmp_path / "mine.npz").output
    assert said == coterie("data", "info", "arrays", "--path", tmp_path / "mine.npz").output
    assert "arrays: 6 examples of 4 numbers" in said
    assert "users     2, with 3 / 3 / 3 examples" in said
    assert ["0", "3", "#" * 40] in [line.split() for line in said.splitlines()]
    assert "licence" not in said


def test_ctrl_c_says_what_it_leaves(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    given = write_leaf(tmp_path / "leaf" / "a.json", leaf_content({"u": [1]})).parent
    monkeypatch.setattr(sources, "content_key", interrupted)
    done = coterie("data", "import", "femnist", given, "--trust")
    assert done.exit_code == 130
    assert done.output == "coterie: stopped; the cache is as it was\n"
    assert not cache.exists()


def test_every_place_on_the_web_is_asked_over_https_for_files_with_a_pinned_sum() -> None:
    on_the_web = [each for each in DATASETS.values() if each.web]
    assert len(on_the_web) > 5
    for each in on_the_web:
        assert all(place.startswith("https://") for place in each.web)
        pinned = sources._pins(each)
        assert all({name, name.removesuffix(".gz")} & set(pinned) for name in each.web_files)
