"""What an algorithm adds to SGD and a mean: a few functions, each of which may be left out.

Nodes, groups and the server keep arrays by name from one mean to the next. They are checkpointed,
resumed and sent to actors, whatever they mean. An array has one number, or one for each of the d
trained numbers of a model; those of nodes have a row for every node.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Arrays = Mapping[str, "Tensor"]
Scope = Literal["group", "global"]


@dataclass(frozen=True, eq=False)
class Kept:
    """What is kept before the first step: of all n nodes, of one group, and of the server."""

    node: Arrays = field(default_factory=dict)  # [n, d] or [n]
    group: Arrays = field(default_factory=dict)  # [d] or []; every group has its own
    server: Arrays = field(default_factory=dict)  # [d] or []; all nodes know it


@dataclass(eq=False, slots=True)
class At:
    """Where c nodes are in their turn; a number is [c, 1], so that it goes with vectors [c, d].

    In `correct`, vectors come a layer at a time, as [c, ...] of the layer's shape.
    """

    given: "Tensor"  # the models that they were given [c, d]
    node: Arrays  # what each keeps [c, d] or [c, 1]
    group: Arrays  # what each one's group keeps [c, d] or [c, 1]
    server: Arrays  # what all know [d] or []
    rates: "Tensor"  # learning rates of the turn's batches, summed
    steps: "Tensor"  # batches in the turn
    mean_steps: "Tensor"  # their mean over the nodes in one mean, weighted by data
    lr: float = 0.0  # of this batch: in `correct` only
    looked: bool = False  # whether what `correct` returns has been looked at

    def layers(self, like: "Sequence[Tensor]") -> "list[At]":
        """Cut all vectors into pieces shaped like the given tensors [c, ...]."""
        found, at, d = [], 0, self.given.shape[1]
        for w in like:
            place, at = slice(at, at + w[0].numel()), at + w[0].numel()
            cut = partial(_cut, d=d, place=place, shape=w.shape[1:])
            found.append(self._each(cut, {key: cut(array) for key, array in self.server.items()}))
        return found

    def first(self, c: int) -> "At":
        """Return the first c nodes."""
        return self if c == len(self.given) else self._take(slice(0, c))

    def one(self, number: int) -> "At":
        """Return one node, as a stack of one."""
        return self if len(self.given) == 1 else self._take(slice(number, number + 1))

    def _take(self, rows: slice) -> "At":
        return self._each(lambda array: array[rows], self.server, self.lr)

    def _each(self, part: "Callable[[Tensor], Tensor]", server: Arrays, lr: float = 0.0) -> "At":
        node, group = (
            {key: part(array) for key, array in arrays.items()}
            for arrays in (self.node, self.group)
        )
        rates, steps, mean_steps = map(part, (self.rates, self.steps, self.mean_steps))
        return At(part(self.given), node, group, server, rates, steps, mean_steps, lr)


def _cut(array: "Tensor", d: int, place: slice, shape: "torch.Size") -> "Tensor":
    """Cut a layer of this shape out of vectors [c, d] or [d]; a number per node goes with it."""
    if array.shape[-1:] == (d,):
        return array[..., place].view(*array.shape[:-1], *shape)
    return array.view(-1, *[1] * len(shape)) if array.ndim > 1 else array


@dataclass(frozen=True, eq=False)
class Pull:
    """What is added to every gradient of a turn: offset + strength (w - towards), all [c, d].

    It is fixed for the turn, and so can be added while the gradient is.
    """

    offset: "Tensor | None" = None
    towards: "Tensor | None" = None
    strength: float = 0.0

    def layers(self, like: "Sequence[Tensor]") -> "list[Pull]":
        """Cut the vectors into pieces shaped like the given tensors [c, ...]."""
        found, at = [], 0
        for w in like:
            size = w[0].numel()
            offset, towards = (
                None if v is None else v[:, at : at + size].view(len(v), *w.shape[1:])
                for v in (self.offset, self.towards)
            )
            found.append(Pull(offset, towards, self.strength))
            at += size
        return found


@dataclass(frozen=True, eq=False)
class Mean:
    """What is known where a mean was taken: all that nodes, groups and the server keep.

    A simulation knows what every node keeps; what of it has to be sent is for `extra` to say.
    """

    given: "Tensor"  # the last global model [d]
    node: Arrays  # [n, d] or [n]
    group: Arrays  # [K, d] or [K]
    server: Arrays  # [d] or []
    p: "Tensor"  # shares of the data [n]
    z: "Tensor"  # the group of every node [n]
    share: float  # of the data: of nodes whose models counted
    scope: Scope

    def by_group(self, array: "Tensor") -> "Tensor":
        """Average a node array [n, ...] in every group, weighted by data: [K, ...]."""
        K = int(self.z.max()) + 1
        weights = self.p.new_zeros(K, len(self.p))
        weights[self.z, range(len(self.p))] = self.p
        weights = weights / weights.sum(dim=1, keepdim=True)
        return weights.to(array) @ array

    def over_all(self, array: "Tensor") -> "Tensor":
        """Average a node array [n, ...] over all nodes, weighted by data: [...]."""
        return self.p.to(array) @ array


Correct = Callable[["Tensor", "Tensor", At], "Tensor"]


@dataclass(frozen=True)
class Update:
    """What an algorithm adds. A function that is left out adds nothing.

    Nodes call `begin`, `pull`, `correct`, `renew` and `send`; whoever averages calls `group` after
    every mean and `server` after a global one. `w` are the d trained numbers of models, [c, d].
    """

    begin: "Callable[[int, Tensor], Kept] | None" = None  # (n, w [d]): what is kept at first
    pull: Callable[[At], Pull] | None = None  # at the start of a turn
    correct: Correct | None = None  # (gradient, w, at): the gradient to go along, in any step
    renew: "Callable[[Tensor, At], Arrays] | None" = None  # (w, at): what nodes keep after a turn
    send: "Callable[[Tensor, At], Tensor] | None" = None  # (w, at): what is sent in place of w
    group: Callable[[Mean], Arrays] | None = None  # what groups keep after a mean
    # (w [d], mean): the global model, and what the server keeps, after a global mean
    server: "Callable[[Tensor, Mean], tuple[Tensor, Arrays]] | None" = None
    personal: "Callable[[nn.Module], Collection[str]] | None" = None  # tensors that stay on nodes
    beside: Correct | None = None  # corrects a second model, which every node has for itself
    extra: Callable[[int, Scope], int] = lambda d, scope: 0  # numbers that travel with a model
    work: float = 1.0  # operations of a step, over those of plain SGD
    momentum: bool = True  # whether local steps may have momentum
    still: bool = False  # whether the pull is zero where a node begins, as FedProx's is

    @property
    def local(self) -> bool:
        """Whether anything is added on nodes."""
        parts = (self.pull, self.correct, self.renew, self.send, self.personal, self.beside)
        return any(part is not None for part in parts)

    @property
    def ends(self) -> bool:
        """Whether anything is to be done on nodes after their last step."""
        return any(part is not None for part in (self.renew, self.send, self.personal, self.beside))


NOTHING = Update()
ALONE = ("pull", "correct", "renew", "send", "group", "personal", "beside")
PARTS = ("begin", *ALONE, "server")


def both(one: Update, other: Update) -> Update:
    """Return two updates as one; of every part at most one of them may have its own.

    Only `begin` and `server` are those of both, of which the second gets the model of the first.

    >>> both(Update(work=2.0), Update(momentum=False)).work
    2.0
    """
    if NOTHING in (one, other):
        return other if one == NOTHING else one
    twice = clash(one, other)
    assert not twice, twice  # whoever puts them together has asked
    parts = {name: getattr(one, name) or getattr(other, name) for name in ALONE}
    return replace(
        one,
        **parts,
        begin=_both_begin(one, other),
        server=_both_servers(one, other),
        extra=lambda d, scope: one.extra(d, scope) + other.extra(d, scope),
        work=one.work * other.work,
        momentum=one.momentum and other.momentum,
        still=(one.still or not one.pull) and (other.still or not other.pull),
    )


def clash(one: Update, other: Update) -> tuple[str, ...]:
    """Name the parts that two updates both have, so that they cannot go together."""
    return tuple(name for name in ALONE if getattr(one, name) and getattr(other, name))


def _both_servers(
    one: Update, other: Update
) -> "Callable[[Tensor, Mean], tuple[Tensor, Arrays]] | None":
    if one.server is None or other.server is None:
        return one.server or other.server
    first, second = one.server, other.server

    def server(w: "Tensor", mean: Mean) -> "tuple[Tensor, Arrays]":
        w, kept = first(w, mean)
        w, more = second(w, mean)
        return w, {**kept, **more}

    return server


def _both_begin(one: Update, other: Update) -> "Callable[[int, Tensor], Kept] | None":
    if one.begin is None or other.begin is None:
        return one.begin or other.begin
    begin_one, begin_other = one.begin, other.begin

    def begin(n: int, w: "Tensor") -> Kept:
        a, b = begin_one(n, w), begin_other(n, w)
        return Kept({**a.node, **b.node}, {**a.group, **b.group}, {**a.server, **b.server})

    return begin
