"""Real SuperLinks and SuperNodes on loopback, for tests and benchmarks; needs Flower."""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from coterie import Config
from coterie.config.factories import divide, load_dataset
from coterie.flower.deploy import Deployment
from coterie.flower.processes import flwr, start, stop, wait_for_port
from coterie.models import make_model
from plans import EXAMPLE

LIGHT = Path(__file__).parent / "light"
RESULT_S = 3600.0


def cut(config: Config, folder: Path) -> None:
    """Write what every node of a simulated run holds, the first model, and the test examples."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    divided = divide(config, load_dataset(config))
    data, split = divided.dataset, divided.split
    for i, indices in enumerate(divided.partition.indices):
        at = split.train[indices]
        np.savez(folder / f"node-{i}.npz", x=data.x[at], y=data.y[at])
    np.savez(folder / "test.npz", x=data.x[split.test], y=data.y[split.test])
    torch.manual_seed(config.seed)
    net = make_model(config.model.name, data.input_shape, data.n_classes)
    arrays: dict[str, Any] = {k: v.numpy() for k, v in net.state_dict().items()}
    np.savez(folder / "start.npz", **arrays)


@dataclass(frozen=True)
class Fleet:
    """One SuperLink with n SuperNodes; `through` is a port to reach it by, such as a proxy's."""

    folder: Path
    n: int
    port: int
    through: int = 0

    @property
    def deployment(self) -> Deployment:
        return Deployment(EXAMPLE, LIGHT, self.folder, port=self.port)

    @contextmanager
    def up(self) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
        """Start the SuperLink and the SuperNodes, and end them whatever happens."""
        d, to = self.deployment, f"127.0.0.1:{self.through or self.port}"
        (self.folder / "home").mkdir(parents=True, exist_ok=True)
        (self.folder / "logs").mkdir(exist_ok=True)
        (self.folder / "links").mkdir(exist_ok=True)
        links = {"superlink": {"default": "all", "all": {"address": to, "insecure": True}}}
        (self.folder / "home" / "config.toml").write_text(tomli_w.dumps(links))
        processes = {"superlink": start(d, "superlink", d.superlink("coordinator"))}
        try:
            wait_for_port("127.0.0.1", self.port, processes["superlink"], self.folder / "logs")
            for i in range(self.n):
                config = f"partition-id={i} num-partitions={self.n}"
                command = ["flower-supernode", "--insecure", "--superlink", to]
                command += ["--port", str(self.port + 1 + i), "--node-config", config]
                processes[f"node-{i}"] = start(d, f"node-{i}", command)
            yield processes
        finally:
            stop(list(processes.values()))

    def run(self, **config: Any) -> None:
        """Start the light app with some settings."""
        values = {**config, "nodes": self.n, "result": str(self.result)}
        words = [f"{key.replace('_', '-')}={json.dumps(value)}" for key, value in values.items()]
        flwr(self.deployment, ["flwr", "run", str(LIGHT), "all", "--run-config", " ".join(words)])

    @property
    def result(self) -> Path:
        return self.folder / "result.json"

    def wait(self, processes: Mapping[str, subprocess.Popen[bytes]]) -> dict[str, Any]:
        """Wait for the app to end, and return what it wrote."""
        deadline = time.monotonic() + RESULT_S
        while not self.result.exists():
            assert processes["superlink"].poll() is None, "the SuperLink ended"
            assert time.monotonic() < deadline, "no result"
            time.sleep(0.3)
        found: dict[str, Any] = json.loads(self.result.read_text())
        return found
