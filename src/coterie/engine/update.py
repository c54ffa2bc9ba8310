"""What an algorithm adds to SGD and a mean: a few functions, each of which may be left out.

Nodes, groups and the server keep arrays by name from one mean to the next. They are checkpointed,
resumed and sent to actors, whatever they mean. An array has one number, or one for each of the d
trained numbers of a model; those of nodes have a row for every node. A turn is the local steps
between two means.
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
    """What is kept before the first step: of all n nodes, of one group, and of the server.

    Attributes:

    - `node`: arrays of the nodes by name, [n, d] or [n].
    - `group`: arrays of one group, [d] or []; every group begins with a copy, if there is a `group`
      to renew them.
    - `server`: arrays of the server, [d] or []; all nodes know them.
    """

    node: Arrays = field(default_factory=dict)
    group: Arrays = field(default_factory=dict)
    server: Arrays = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class At:
    """Where c nodes are in their turn; a number is [c, 1], so that it goes with vectors [c, d].

    In `correct` and `beside`, vectors come a layer at a time, as [c, ...] of the layer's shape.

    Attributes:

    - `given`: the models that the nodes were given when the turn began, [c, d].
    - `node`: what each node keeps, by name, [c, d] or [c, 1].
    - `group`: what each node's group keeps, by name, [c, d] or [c, 1].
    - `server`: what the server keeps and all nodes know, by name, [d] or [].
    - `rates`: the sum of the learning rates over the batches of the turn, [c, 1].
    - `steps`: the number of batches in the turn, [c, 1].
    - `mean_steps`: the mean of `steps` over the nodes that are averaged together, by data, [c, 1].
    - `lr`: the learning rate of this batch, in `correct` and `beside` only; elsewhere 0.
    - `looked`: whether what `correct` returns has been checked in this turn; not for you.
    """

    given: "Tensor"
    node: Arrays
    group: Arrays
    server: Arrays
    rates: "Tensor"
    steps: "Tensor"
    mean_steps: "Tensor"
    lr: float = 0.0
    looked: bool = False

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

    Attributes:

    - `offset`: a vector that is added as it is, [c, d]; None adds nothing.
    - `towards`: the models that steps are pulled to, [c, d]; None pulls nowhere.
    - `strength`: how strongly they are pulled.
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

    Attributes:

    - `given`: the last global model, [d]; it is kept for updates with a `server` only.
    - `node`: what the nodes keep, by name, after `renew`, [n, d] or [n].
    - `group`: what the K groups keep, by name, [K, d] or [K]; in `server`, after `group`.
    - `server`: what the server keeps, by name, [d] or [].
    - `p`: each node's share of the data, [n].
    - `z`: each node's group, 0..K-1, [n].
    - `share`: the share of the data that is on nodes whose models counted in this mean.
    - `scope`: "group" after a mean of groups, "global" after one of all.
    """

    given: "Tensor"
    node: Arrays
    group: Arrays
    server: Arrays
    p: "Tensor"
    z: "Tensor"
    share: float
    scope: Scope

    def by_group(self, array: "Tensor") -> "Tensor":
        """Average a node array [n, ...] in every group, weighted by data: [K, ...]."""
        kept = next(
            iter(self.group.values()), None
        )  # has a row for every group, and no need to ask
        K = int(self.z.max()) + 1 if kept is None else len(kept)
        weights = self.p.new_zeros(K, len(self.p))
        weights.scatter_(0, self.z[None], self.p[None])
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
    Arrays that `renew`, `group` and `server` do not return keep their values.

    Attributes:

    - `begin(n, w)`: returns what is kept before the first step; w is the first model, [d].
    - `pull(at)`: returns what is added to every gradient of a turn; called when the turn begins.
    - `correct(g, w, at)`: returns the gradient to step along; called for every batch and layer.
    - `renew(w, at)`: returns what nodes keep from now on; called when a turn ends.
    - `send(w, at)`: returns what is sent in place of w, [c, d]; called when a turn ends.
    - `group(mean)`: returns what groups keep from now on; called after every mean.
    - `server(w, mean)`: returns the global model, [d], and what the server keeps from now on;
      called after every global mean.
    - `personal(model)`: returns the names of tensors that stay on nodes; called at the start.
    - `beside(g, w, at)`: is `correct` of a second model, which every node trains and keeps.
    - `extra(d, scope)`: counts the numbers of 4 bytes that travel with a model, in each direction.
    - `work`: operations of a local step, over those of plain SGD.
    - `momentum`: whether local steps may have momentum.
    - `still`: whether the pull is zero where a turn begins, as FedProx's is.
    """

    begin: "Callable[[int, Tensor], Kept] | None" = None
    pull: Callable[[At], Pull] | None = None
    correct: Correct | None = None
    renew: "Callable[[Tensor, At], Arrays] | None" = None
    send: "Callable[[Tensor, At], Tensor] | None" = None
    group: Callable[[Mean], Arrays] | None = None
    server: "Callable[[Tensor, Mean], tuple[Tensor, Arrays]] | None" = None
    personal: "Callable[[nn.Module], Collection[str]] | None" = None
    beside: Correct | None = None
    extra: Callable[[int, Scope], int] = lambda d, scope: 0
    work: float = 1.0
    momentum: bool = True
    still: bool = False

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
