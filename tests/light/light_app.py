"""A light Flower app: softmax regression in NumPy on parts that a simulated run was cut into."""

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from coterie.flower.client import answer_query, answer_train, arrays_of, local_update, node_name

client = ClientApp()
server = ServerApp()
Arrays = dict[str, np.ndarray]


def part(context: Context, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return examples [N, d] and labels [N]."""
    with np.load(Path(str(context.run_config["parts"])) / f"{name}.npz") as file:
        return file["x"].reshape(len(file["y"]), -1).astype(np.float32) / 255, file["y"]


def errors(arrays: Mapping[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return softmax minus one-hot [N, C]."""
    scores = x @ arrays["1.weight"].T + arrays["1.bias"]
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    scores /= scores.sum(axis=1, keepdims=True)
    scores[np.arange(len(y)), y] -= 1
    found: np.ndarray = scores
    return found


@client.query()
def query(message: Message, context: Context) -> Message:
    _, y = part(context, f"node-{context.node_config['partition-id']}")
    return answer_query(message, context, len(y), np.bincount(y, minlength=10).tolist())


@client.train()
def train(message: Message, context: Context) -> Message:
    run, config = context.run_config, message.content["config"]
    x, y = part(context, f"node-{context.node_config['partition-id']}")
    start = int(config.get("start", int(run["tau1"]) * (int(config["server-round"]) - 1)))
    stop = int(config.get("stop", start + int(run["tau1"])))
    rates = [float(run["lr"]) * float(run["lr-decay"]) ** t for t in range(start, stop)]
    if run["algorithm"] != "fedavg":
        return corrected(message, context, x, y, rates)
    arrays = {key: array.copy() for key, array in arrays_of(message).items()}
    for lr in rates:
        error = errors(arrays, x, y) / len(y)
        arrays["1.weight"] -= (lr * error.T @ x).astype(np.float32)
        arrays["1.bias"] -= (lr * error.sum(axis=0)).astype(np.float32)
    return answer_train(message, spoilt(arrays, context, stop), len(y))


def corrected(
    message: Message, context: Context, x: np.ndarray, y: np.ndarray, rates: list[float]
) -> Message:
    """Train by an algorithm, whose functions are torch's."""
    import torch
    from torch import nn

    net = nn.Sequential(nn.Flatten(), nn.Linear(x.shape[1], 10))
    turn = local_update(message, context, net, rates, str(context.run_config["algorithm"]))
    for _ in rates:
        net.zero_grad()
        loss = nn.functional.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()  # type: ignore[no-untyped-call]
        turn.step()
    return turn.answer(len(y))


def spoilt(arrays: Arrays, context: Context, stop: int) -> Arrays:
    """Go wrong as asked, such as nan:1,raise:3, after the first step."""
    run, faults = context.run_config, {}
    for word in filter(None, str(run["faulty"]).split(",")):
        kind, _, who = word.partition(":")
        faults[who] = kind
    fault = faults.get(node_name(context), "") if stop > 1 else ""
    if fault == "raise":
        raise ValueError("no disk")
    if fault == "sleep":
        time.sleep(float(run["timeout"]) + 5)
    if fault == "hold" and stop > int(run["tau1"]) * int(run["tau2"]):  # after the first round
        while not (Path(str(run["parts"])) / "go").exists():
            time.sleep(0.1)
    wrong = {"nan": np.full(10, np.nan, np.float32), "shape": np.zeros(9, np.float32)}
    return {**arrays, "1.bias": wrong.get(fault, arrays["1.bias"])}


def initial(run: Mapping[str, Any]) -> Arrays:
    with np.load(Path(str(run["parts"])) / "start.npz") as file:
        return {key: file[key] for key in file.files}


def evaluate(run: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, float]:
    with np.load(Path(str(run["parts"])) / "test.npz") as file:
        x, y = file["x"].reshape(len(file["y"]), -1).astype(np.float32) / 255, file["y"]
    scores = x @ arrays["1.weight"].T + arrays["1.bias"]
    return {"accuracy": float((scores.argmax(axis=1) == y).mean())}


@server.main()
def main(grid: Grid, context: Context) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("coterie").setLevel(logging.INFO)
    run = context.run_config
    first = ArrayRecord({key: Array(array) for key, array in initial(run).items()})

    def evaluate_fn(round_: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord(evaluate(run, {key: array.numpy() for key, array in arrays.items()}))

    n, timeout = int(run["nodes"]), float(run["timeout"])
    if run["plain"]:
        plain = FedAvg(1.0, 0.0, n, 0, n)
        rounds = int(run["rounds"]) * int(run["tau2"])
        result = plain.start(grid, first, rounds, timeout, ConfigRecord(), None, evaluate_fn)
    else:
        result = groups(run, n).start(
            grid, first, int(run["rounds"]), timeout, evaluate_fn=evaluate_fn
        )
    found = {
        "accuracy": {k: v["accuracy"] for k, v in result.evaluate_metrics_serverapp.items()},
        "train": {k: dict(v) for k, v in result.train_metrics_clientapp.items()},
    }
    there = Path(str(run["result"]))
    there.with_suffix(".tmp").write_text(json.dumps(found))
    there.with_suffix(".tmp").rename(there)


def groups(run: Mapping[str, Any], n: int) -> Any:
    from coterie.flower import GroupStrategy

    return GroupStrategy(
        int(run["num-groups"]),
        int(run["tau1"]),
        int(run["tau2"]),
        min_nodes=n,
        wait_s=600,
        state_dir=run["state-dir"] or None,
        algorithm=str(run["algorithm"]),
    )
