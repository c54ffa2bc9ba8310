"""What one actor does: it holds some nodes and pieces of what is held out, and answers for them.

Whatever crosses is an array or a number. Every answer is a function of the question, so that one
that was lost with its actor can be asked for again; gradients are kept between two questions about
the same model, and computed again by an actor that does not have them.
"""

import pickle
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core.arrays import Floats, Ints
from coterie.core.errors import ConfigError
from coterie.divergences.sketch import Sketch
from coterie.engine.contract import HeldPart, LocalSteps, Models
from coterie.engine.gradients import Centres
from coterie.engine.habits import Habits
from coterie.engine.local_rule import LocalRule
from coterie.engine.memory import COMMON, GROUP, OWN, remembering
from coterie.engine.module import HeldOut, Nodes, Piece, Shards
from coterie.engine.task import CLASSIFICATION, Task
from coterie.engine.vectorized import Vectorized

Numbers = NDArray[np.float32] | NDArray[np.float64]  # of models: train.precision


@dataclass(frozen=True, eq=False)
class Work:
    """How all actors of a run do: the module, pickled, and how its nodes step."""

    module: bytes
    path: tuple[str, ...]  # where a user's own module is imported from
    steps: LocalSteps
    rule: LocalRule
    device: str
    threads: int
    habits: Habits
    kernel: str
    task: Task = CLASSIFICATION


@dataclass(frozen=True, eq=False)
class Part:
    """What one actor holds."""

    work: Work
    nodes: Nodes
    held_out: HeldOut
    held_by_node: Mapping[HeldPart, Nodes] = field(default_factory=dict)  # the nodes' own, if any


@dataclass(frozen=True, eq=False)
class Own:
    """The own models of an actor's nodes: node i has number which[i] of ws, or of those all got."""

    which: Ints
    ws: Numbers | None = None


@dataclass(frozen=True, eq=False)
class Order:
    """Steps start+1 .. stop from models w [m, d], of which node i has of_node[i], to means by z."""

    w: Numbers
    of_node: Ints
    common: Mapping[str, Numbers]  # what all know
    group: Mapping[str, Numbers]  # what groups keep
    start: int
    stop: int
    z: Ints
    there: Ints
    others: Floats  # batches that those take, on average, who are averaged with a node [n]


@dataclass(frozen=True, eq=False)
class Sums:
    """An actor's part of the means of some groups: sums [k, d]; what its m nodes keep [m, d].

    Sums are in double precision: rounded, they would differ with the number of actors by as much
    as makes a max pool choose another pixel.
    """

    groups: Ints
    sums: Floats
    own: Mapping[str, Numbers] = field(default_factory=dict)


class Shard:
    """Some nodes of a run."""

    def __init__(self, part: Part) -> None:
        """Take the nodes; their examples stay where they are, in shared memory if they are."""
        work = part.work
        sys.path += [folder for folder in work.path if folder not in sys.path]
        _check_device(work.device)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            self._engine = Vectorized(
                pickle.loads(work.module),
                part.nodes,
                part.held_out,
                work.steps,
                work.device,
                work.rule,
                work.threads,
                habits=work.habits,
                kernel=work.kernel,
                task=work.task,
            )
        self._device = torch.device(work.device)
        self._held_by_node = {
            key: Shards(own, self._device, self._engine.shards.dtype)
            for key, own in part.held_by_node.items()
        }
        self._rows: tuple[int, Floats, Tensor] | None = None
        self._centres: tuple[int, Centres] | None = None

    def advance(self, order: Order, own: Mapping[str, Numbers]) -> Sums:
        """Take local steps, and add up the models by group, weighted by data."""
        models = Models(self._tensor(order.w), order.of_node)
        for kind, arrays in ((OWN, own), (COMMON, order.common), (GROUP, order.group)):
            there = {key: self._tensor(array) for key, array in arrays.items()}
            models = remembering(models, kind, there)
        sums, renewed = self._engine.sums(
            models, order.start, order.stop, order.z, order.there, order.others
        )
        return _nonzero(sums, {key: array.cpu().numpy() for key, array in renewed.items()})

    def sketches(self, w: Numbers, sketch: Sketch) -> tuple[Floats, Floats]:
        """Losses [m] of the nodes here, and sketches [m, r] of their gradients."""
        losses, rows = self._engine.gauge().rows(self._tensor(w), sketch)
        return losses, rows.cpu().numpy()

    def columns(self, w: Numbers, moment: int, start: int, stop: int) -> tuple[Floats, Numbers]:
        """Losses [m], and the entries from start to stop of the gradients of the nodes here."""
        if self._rows is None or self._rows[0] != moment:
            self._rows = (moment, *self._engine.gauge().rows(self._tensor(w)))
        _, losses, rows = self._rows
        found: Numbers = rows[:, start:stop].contiguous().cpu().numpy()
        if stop >= rows.shape[1]:
            self._rows = None
        return losses, found

    def centres(self, w: Numbers, moment: int, z: Ints) -> tuple[Floats, Sums]:
        """Losses [m], and the part of the nodes here in the groups' mean gradients."""
        found = self._engine.gauge().centres(self._tensor(w), z)
        self._centres = moment, found
        return found.losses.cpu().numpy(), _nonzero(found.sums, {})

    def distances(self, w: Numbers, moment: int, z: Ints, near: Numbers) -> list[float]:
        """Weighted distances of the gradients here from their groups' means near [K, d]."""
        kept = self._centres[1] if self._centres and self._centres[0] == moment else None
        self._centres = None
        return self._engine.gauge().distances(self._tensor(w), z, self._tensor(near), kept)

    def losses(self, ws: Numbers) -> tuple[Floats]:
        """Losses [m_here, m] of the nodes here at m models."""
        return (self._engine.losses(self._tensor(ws)),)

    def tally(
        self, part: HeldPart | None, ws: Numbers | None, own: Own
    ) -> tuple[Floats, Ints, Ints, Piece]:
        """Score the nodes here by their models, on what they hold out or, None, what they train on.

        Returns the sums of their losses, right answers, the latter by class with the examples, and
        what metrics keep of what they hold out.
        """
        shards = self._engine.shards
        data = shards if part is None else self._held_by_node[part]
        given = ws if own.ws is None else own.ws
        assert given is not None  # one or the other is sent
        vectors = self._tensor(given)
        keep = part is not None
        found = self._engine.scorer().tally(data, own.which, vectors.__getitem__, keep=keep)
        by_class = np.array([found.class_right, found.class_count])
        return found.loss[shards.here], found.right[shards.here], by_class, found.answers

    def scores(self, w: Numbers, part: HeldPart) -> list[Piece]:
        """Scores of w on the held-out pieces here."""
        return self._engine.scores(self._tensor(w), part)

    def _tensor(self, array: Numbers) -> Tensor:
        return torch.tensor(array, device=self._device)


def _nonzero(sums: Tensor, own: Mapping[str, Numbers]) -> Sums:
    """Leave out groups that nothing was added to: what travels is a model per group here."""
    sums = sums.cpu()
    groups = torch.nonzero(sums.any(dim=1)).flatten()
    return Sums(groups.numpy(), sums[groups].numpy(), own)


def _check_device(device: str) -> None:
    """Refuse a device that the actor was not given."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "train.device 'cuda' is not there for an actor; set ray.gpus_per_actor to its share "
            "of a GPU, or use train.device = 'cpu'"
        )
    if device == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("train.device 'mps' is not there for an actor; use 'cpu'")
