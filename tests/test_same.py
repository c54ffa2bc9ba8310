"""What scripts/same.py finds between two folders of a run."""

import importlib.util
import json
import struct
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "same.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("same", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


same = load()


def model(*numbers: float) -> bytes:
    entry = {"dtype": "F32", "shape": [len(numbers)], "data_offsets": [0, 4 * len(numbers)]}
    told = json.dumps({"w": entry}).encode()
    return len(told).to_bytes(8, "little") + told + struct.pack(f"<{len(numbers)}f", *numbers)


def run(folder: Path, wall_s: float) -> Path:
    """Leave what a run of three rows leaves, by hand."""
    folder.mkdir()
    rows = [{"t": t, "test_loss": 0.5 + t / 100, "wall_s": wall_s * t} for t in range(3)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = {"status": "complete", "bytes_by_tier": {"core": 4}, "wall_s": wall_s}
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    (folder / "config.toml").write_text("seed = 0\n[train]\nsteps = 3\n")
    (folder / "model.safetensors").write_bytes(model(1.0, 2.0, 3.0))
    return folder


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    return run(tmp_path / "base", 0.25), run(tmp_path / "mine", 1e-05)


def test_folders_that_differ_in_wall_times_alone_are_the_same(folders: tuple[Path, Path]) -> None:
    base, mine = folders
    assert (base / "rows.jsonl").read_bytes() != (mine / "rows.jsonl").read_bytes()
    assert same.differences(base, mine) == []
    assert same.described(mine) == "rows 3, model 3 numbers"


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("rows.jsonl", "0.52", "0.51", "line 3: test_loss 0.51 instead of 0.52"),
        ("rows.jsonl", '"t": 1', '"t": 1.0', "line 2: t 1.0 instead of 1"),
        ("rows.jsonl", '"t": 2', '"T": 2', "line 3: has and lacks t, T"),
        ("summary.json", '"core": 4', '"core": 5', "bytes_by_tier.core 5 instead of 4"),
        ("summary.json", "\n", "\r\n", "has other line ends"),
        ("config.toml", "steps = 3", "steps = 4", "line 3: 'steps = 4' instead of 'steps = 3'"),
        ("config.toml", "[train]\n", "[train]\nlr = 0.1\n", "line 3: 'lr = 0.1' is new"),
        ("config.toml", "seed = 0\n", "", "line 1: 'seed = 0' is missing"),
    ],
)
def test_one_changed_digit_is_found_and_named(
    folders: tuple[Path, Path], name: str, old: str, new: str, said: str
) -> None:
    base, mine = folders
    content = (mine / name).read_bytes()
    assert old.encode() in content
    (mine / name).write_bytes(content.replace(old.encode(), new.encode()))
    assert same.differences(base, mine) == [f"{name} {said}"]


def test_the_last_bit_of_a_model_is_found_and_named(folders: tuple[Path, Path]) -> None:
    base, mine = folders
    (mine / "model.safetensors").write_bytes(model(1.0, 2.0000002, 3.0))
    said = ["model.safetensors w: 1 of 3 numbers differ"]
    assert same.differences(base, mine) == said


def test_a_model_of_another_shape_is_named(folders: tuple[Path, Path]) -> None:
    base, mine = folders
    (mine / "model.safetensors").write_bytes(model(1.0, 2.0))
    assert same.differences(base, mine) == ["model.safetensors header: w.shape[0] 2 instead of 3"]


def test_a_missing_file_and_a_new_one_are_named(folders: tuple[Path, Path]) -> None:
    base, mine = folders
    (mine / "summary.json").unlink()
    (mine / "more").mkdir()
    (mine / "more" / "groups.csv").write_text("node\n")
    said = ["more/groups.csv is new", "summary.json is missing"]
    assert same.differences(base, mine) == said


def test_settings_are_told_of_last(folders: tuple[Path, Path]) -> None:
    base, mine = folders
    for name in ("config.toml", "rows.jsonl"):
        (mine / name).write_text("")
    assert [line.split()[0] for line in same.differences(base, mine)] == [
        "rows.jsonl",
        "config.toml",
    ]


def test_pictures_are_compared_byte_by_byte(folders: tuple[Path, Path]) -> None:
    base, mine = folders
    (base / "page.png").write_bytes(b"\x89PNG\xff\x00")
    (mine / "page.png").write_bytes(b"\x89PNG\xfe\x00\x00")
    said = ["page.png differs from byte 4 on; 7 bytes instead of 6"]
    assert same.differences(base, mine) == said
