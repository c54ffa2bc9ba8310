"""The arrays of whole runs, laid out once on disk, and the command that each contestant runs.

Coterie keeps a quarter of what is not tested on for validation. So a case has 4/3 of the examples
that its nodes train on, and every peer is given just those that Coterie deals to the nodes.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from case import Case, write_case
from environments import ONE_THREAD, interpreter, one_core
from numpy.typing import NDArray

from coterie.config.factories import divide, load_dataset
from coterie.config.files import make_config, to_toml
from coterie.config.prepare import first_model
from coterie.config.settings import Config

PEERS = Path(__file__).resolve().parent
FASHION = Path("/usr/share/datasets/fashion-mnist")
CACHE = PEERS / ".cache"
SHAPES = {"fashion": ((1, 28, 28), 10), "femnist": ((1, 28, 28), 62), "cifar": ((3, 32, 32), 10)}
PIECE = 50_000  # images drawn at a time
# What XLA compiles is kept from turn to turn, as what Numba compiles is.
COMPILED_ONCE = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}


def config_of(case: Case, arrays: Path) -> Config:
    """Return the case as Coterie's settings; what is not a peer's doing is switched off."""
    own = case.model in ("sr", "2nn", "cnn")
    return make_config(
        {
            "label": case.name,
            "data": {"name": "arrays", "path": str(arrays), "split": "official"},
            "partition": {
                "kind": "quantity",
                "spread": "lognormal",
                "sd": case.sd,
                "num_nodes": case.nodes,
            },
            "model": {"name": case.model if own else f"nets:{case.model.replace('-', '_')}"},
            "algorithm": {"name": "fedavg", "tau1": case.epochs, "tau2": 1},
            "train": {
                "steps": case.rounds * case.epochs,
                "batch_size": case.batch,
                "lr": case.lr,
                "lr_decay": 1.0,
                "eval_every": case.eval_every,
                "measure": ["accuracy"],
            },
            "optimizer": {"momentum": case.momentum},
            "participation": {"fraction": case.cohort / case.nodes, "sampled": "all"},
        }
    )


def source(data: str) -> str:
    """Say where the images of a case come from."""
    if data != "fashion":
        shape, classes = SHAPES[data]
        return f"generated, {'x'.join(map(str, shape))}, {classes} classes"
    return "Fashion-MNIST" if FASHION.is_dir() else "7,000 images of Fashion-MNIST, repeated"


def lay_out(case: Case, cache: Path = CACHE) -> Path:
    """Return the folder of a case's arrays, after making it where there is none."""
    kept = [case.data, case.nodes, case.examples, case.sd, case.model, case.tested]
    kept.append(FASHION.is_dir())
    name = hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:8]
    folder = cache / f"{case.data}-{case.nodes}x{case.examples}-{case.model}-{name}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as made:
        part = Path(made) / "part"
        (part / "all").mkdir(parents=True)
        rest = -(-case.nodes * case.examples * 4 // 3)
        x, y = _images(case.data, rest, case.tested)
        np.save(part / "all" / "x.npy", x)
        np.save(part / "all" / "y.npy", y)
        np.save(part / "all" / "test.npy", np.arange(len(y)) >= rest)
        _deal(case, part)
        part.rename(folder)
    return folder


def _deal(case: Case, folder: Path) -> None:
    """Write what peers read: the nodes' examples as Coterie deals them, and its first weights."""
    config = config_of(case, folder / "all")
    dataset = load_dataset(config)
    divided = divide(config, dataset)
    order = divided.split.train[np.concatenate(divided.partition.indices)]
    parts = {"train": order, "test": divided.split.test}
    for name, rows in parts.items():
        np.save(folder / f"{name}_x.npy", dataset.x[rows])
        np.save(folder / f"{name}_y.npy", dataset.y[rows].astype(np.int64))
    np.save(folder / "sizes.npy", divided.partition.sizes)
    model, _ = first_model(config, dataset)
    weights: dict[str, Any] = {
        f"w{i}": w.detach().numpy() for i, w in enumerate(model.parameters())
    }
    np.savez(folder / "weights.npz", **weights)


def _images(data: str, rest: int, tested: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images and labels: those of the test part last."""
    if data == "fashion":
        return _fashion(rest, tested)
    (shape, classes), total = SHAPES[data], rest + tested
    pictures = np.random.default_rng([0, 1]).integers(128, size=(classes, *shape), dtype=np.uint8)
    labels = np.random.default_rng([0, 2]).integers(classes, size=total)
    x, noise = np.empty((total, *shape), dtype=np.uint8), np.random.default_rng([0, 3])
    for at in range(0, total, PIECE):
        few = labels[at : at + PIECE]
        x[at : at + PIECE] = noise.integers(128, size=(len(few), *shape), dtype=np.uint8)
        x[at : at + PIECE] += pictures[few]
    return x, labels


def _fashion(rest: int, tested: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    there = {"name": "mnist-f", "path": str(FASHION)} if FASHION.is_dir() else {}
    found = load_dataset(make_config({"data": there}))
    assert found.test is not None
    train, test = np.flatnonzero(~found.test), np.flatnonzero(found.test)
    rows = np.concatenate([np.resize(train, rest), np.resize(test, tested)])
    return found.x[rows].reshape(-1, 1, 28, 28), found.y[rows].astype(np.int64)


def run(who: str, case: Case, cores: int, cache: Path = CACHE) -> dict[str, Any]:
    """Run a case by a contestant, on one core or on all, and return what it took and reached."""
    arrays = lay_out(case, cache)
    with tempfile.TemporaryDirectory(dir=cache) as made:
        folder = Path(made)
        command, rows = _command(who, case, cores, arrays, folder)
        held = one_core() if cores == 1 else []
        meter = [sys.executable, str(PEERS / "meter.py"), "--", *held, *command]
        env = os.environ | _environment(case, cores, cache)
        done = subprocess.run(
            meter, env=env, cwd=PEERS, capture_output=True, text=True, check=False
        )
        lines = done.stdout.splitlines()
        took = json.loads(lines[-1]) if lines else {"code": done.returncode}
        if took["code"] or not rows.is_file():
            tail = "\n".join(done.stderr.splitlines()[-20:])
            raise RuntimeError(f"{who} could not run {case.name}, code {took['code']}:\n{tail}")
        last_row_s = rows.stat().st_mtime - took.pop("begun")
        reached = _reached(rows, case, arrays)
        told = done.stderr.splitlines()
    return took | {
        **({"phases": json.loads(told[-1])} if who == "phases" else {}),
        "who": who,
        "case": case.name,
        "cores": cores,
        "rounds": case.rounds,
        "last_row_s": round(last_row_s, 3),
        **reached,
    }


def _command(
    who: str, case: Case, cores: int, arrays: Path, folder: Path
) -> tuple[list[str], Path]:
    """Return what to run, and the file of rows that it will have written."""
    if who in ("coterie", "phases"):
        file = folder / "run.toml"
        file.write_text(to_toml(config_of(case, arrays / "all")))
        start = ["-m", "coterie"] if who == "coterie" else [str(PEERS.parent / "phases.py")]
        words = ["run", str(file), "-o", str(folder / "run"), "--workers", str(cores)]
        return [sys.executable, *start, *words], folder / "run" / "rows.jsonl"
    rows = folder / "rows.jsonl"
    words = ["--case", write_case(case), "--folder", str(arrays), "--rows", str(rows)]
    return [str(interpreter(who)), str(PEERS / f"whole_{who}.py"), *words], rows


def _environment(case: Case, cores: int, cache: Path) -> dict[str, str]:
    """Return one thread for one core; for several, what suits the case, and XLA's own choice."""
    found = ONE_THREAD | {"COTERIE_DATA": str(cache / "datasets")} | COMPILED_ONCE
    found["JAX_COMPILATION_CACHE_DIR"] = str(cache / "jax")
    if cores > 1:
        threads = str(min(cores, case.threads))
        found |= {name: threads for name in found if name.endswith("_NUM_THREADS")}
        found["XLA_FLAGS"] = ""
    path = os.pathsep.join(filter(None, [str(PEERS), os.environ.get("PYTHONPATH", "")]))
    return found | {"PYTHONPATH": path}


def _reached(rows: Path, case: Case, arrays: Path) -> dict[str, Any]:
    """Return what the last row with scores says, and how many rows have scores.

    Peers count the examples that they train on. Coterie's rows have local epochs: that tells the
    examples where all nodes take part, and else nothing does.
    """
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    scored = [row for row in found if row.get("accuracy", row.get("test_accuracy")) is not None]
    last = scored[-1]
    examples = last.get("seen")
    if "epoch" in last and case.cohort == case.nodes:
        examples = round(last["epoch"] * int(np.load(arrays / "sizes.npy").sum()))
    return {
        "accuracy": last.get("accuracy", last.get("test_accuracy")),
        "loss": last.get("loss", last.get("test_loss")),
        "evaluations": len(scored),
        "examples": examples,
    }


def tiny(case: Case) -> Case:
    """Return a case that only shows whether everything runs."""
    few = max(1, case.cohort * 20 // case.nodes)
    small = replace(case, name=f"{case.name}-tiny", nodes=20, cohort=few, rounds=2, eval_every=1)
    return replace(small, examples=min(60, case.examples), tested=500)
