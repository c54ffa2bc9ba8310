"""A tracker of one's own: a folder with a file of lines for every run."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def open(destination: str, run: Any, note: Mapping[str, Any]) -> "Run":
    return Run(Path(destination), run, note)


class Run:
    """`fails-in-add`, `dies`, `hangs` and `noise` in the folder's name are done."""

    def __init__(self, folder: Path, run: Any, note: Mapping[str, Any]) -> None:
        self.how = folder.name
        if self.how == "fails":
            raise RuntimeError("the server said\nno")
        if self.how == "noise":
            print("noise " * 10_000)
            os.write(2, b"noise")
        if self.how == "hangs":
            time.sleep(3600)
        folder.mkdir(parents=True, exist_ok=True)
        self.path = Path(note.get("path", folder / f"{run.experiment}-{run.name}.jsonl"))
        lines = []
        if self.path.exists():
            os.truncate(self.path, len(_whole(self.path)))
            lines = read(self.path)
        self.last = max((line["t"] for line in lines if "t" in line), default=-1)
        self._write({"params": dict(run.params), "began": run.began})

    @property
    def note(self) -> dict[str, str]:
        return {"path": str(self.path)}

    def add(self, points: Sequence[Any]) -> None:
        if self.how == "fails-in-add":
            raise KeyError
        if self.how == "dies":
            os.abort()
        for each in points:
            self._write({"t": each.t, "values": dict(each.values)})
            self.last = each.t

    def finish(self, status: str, final: Mapping[str, float]) -> None:
        self._write({"status": status, "final": dict(final)})

    def _write(self, line: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _whole(path).splitlines()]


def _whole(path: Path) -> bytes:
    """Lines of a file without the last one where a full disk has cut it off."""
    text = path.read_bytes()
    return text[: text.rfind(b"\n") + 1]
