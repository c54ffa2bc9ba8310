"""Heart disease in UCI's layout: FLamby's columns, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from coterie.config.factories import divide, load_dataset
from coterie.config.files import make_config
from coterie.core.errors import DataError
from coterie.data.heart import find_heart, read_heart
from datafiles import HEART, write_all


def test_ten_columns_become_thirteen_and_patients_with_a_missing_value_go(tmp_path: Path) -> None:
    data = read_heart(find_heart(write_all(tmp_path, HEART)))
    assert (data.task, data.n_classes, data.x.dtype.name) == ("binary", 2, "float32")
    assert data.user_names == ("cleveland", "hungarian", "switzerland", "va")
    assert data.users is not None
    assert data.users.tolist() == [0, 0, 1, 1, 2, 3, 3]  # the second of hungarian has no chol
    assert data.y.tolist() == [0, 1, 0, 1, 1, 1, 0]
    # age, sex, trestbps, chol, fbs, thalach, exang, oldpeak; cp 2, 3, 4; restecg 1, 2
    first = [63, 1, 145, 233, 1, 150, 0, 2.3, 0, 0, 0, 0, 1]
    assert data.x[0].tolist() == np.array(first, np.float32).tolist()
    assert data.x[2, 8:].tolist() == [1, 0, 0, 0, 1]
    assert data.x[5, 8:].tolist() == [0, 0, 1, 1, 0]


def test_missing_values_become_means_where_that_is_asked(tmp_path: Path) -> None:
    files = find_heart(write_all(tmp_path, HEART))
    data = read_heart(files, "mean")
    assert len(data.y) == 8
    assert data.x[3, 3] == np.float32(np.mean([233, 286, 132, 237, 0, 260, 209]))
    with pytest.raises(DataError, match=r"hungarian\.data: patient 2, column 'chol': is missing"):
        read_heart(files, "refuse")


def test_a_line_of_names_and_empty_cells_for_missing_ones_are_read_too(tmp_path: Path) -> None:
    header = b"age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,target\n"
    named = {name: header + content.replace(b"?", b"") for name, content in HEART.items()}
    plain = read_heart(find_heart(write_all(tmp_path / "a", HEART)))
    other = read_heart(find_heart(write_all(tmp_path / "b", named)))
    assert np.array_equal(plain.x, other.x)
    assert np.array_equal(plain.y, other.y)


def test_numbers_are_standardised_by_the_training_part_and_codes_are_not(
    tmp_path: Path, cache: Path
) -> None:
    many = {name: content * 20 for name, content in HEART.items()}
    what = {"name": "heart", "path": str(write_all(tmp_path, many))}
    config = make_config({"data": what, "partition": {"kind": "natural"}})
    raw = load_dataset(config)
    divided = divide(config, raw)
    seen = divided.dataset.x[divided.split.train]
    numbers, codes = [0, 2, 3, 5, 7], [1, 4, 6, 8, 9, 10, 11, 12]
    assert np.allclose(seen[:, numbers].mean(axis=0), 0, atol=1e-5)
    assert np.allclose(seen[:, numbers].std(axis=0), 1, atol=1e-5)
    assert np.array_equal(divided.dataset.x[:, codes], raw.x[:, codes])
    plain = make_config({"data": {**what, "scale": "none"}, "partition": {"kind": "natural"}})
    assert np.array_equal(divide(plain, raw).dataset.x, raw.x)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b"63.0,", b"old,", r"line 1, column 'age': must be a number, or '\?' .*, got 'old'"),
        (b"63.0,", b"nan,", "line 1, column 'age': must be a number"),
        (b",145.0,", b",1e9,", "line 1, column 'trestbps': must be a number"),
        (b",1.0,145.0", b",7,145.0", "line 1, column 'cp': must be 1 to 4, got '7'"),
        (b",6.0,0\n", b",6.0,?\n", "line 1, column 'target': must be a number"),
        (b",6.0,0\n", b",6.0,5\n", "line 1, column 'target': must be 0 to 4"),
        (b",6.0,0\n", b",6.0\n", "line 1: must have 14 values, got 13"),
        (b"67.0,", b'"67.0,', "not a CSV file"),
    ],
)
def test_what_is_no_patient_is_refused(tmp_path: Path, old: bytes, new: bytes, says: str) -> None:
    folder = write_all(tmp_path, HEART)
    file = folder / "processed.cleveland.data"
    assert old in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(old, new, 1))
    with pytest.raises(DataError, match=says) as caught:
        read_heart(find_heart(folder))
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_hospitals_without_a_file_or_without_patients_are_refused(tmp_path: Path) -> None:
    folder = write_all(tmp_path, HEART)
    (folder / "processed.va.data").write_bytes(b"")
    with pytest.raises(DataError, match=r"processed\.va\.data: has no patients"):
        read_heart(find_heart(folder))
    (folder / "processed.va.data").unlink()
    with pytest.raises(DataError, match=r"has no processed\.va\.data"):
        find_heart(folder)
