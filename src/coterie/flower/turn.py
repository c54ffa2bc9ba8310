"""A node's turn by an algorithm: from the model that came to what is sent back; without Flower."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from coterie.engine.contract import LocalSteps, Models
from coterie.engine.descent import Descent
from coterie.engine.local_rule import LocalRule
from coterie.engine.memory import GROUP, GROUPS, OWN
from coterie.engine.turns import Turns
from coterie.flower import FlowerError
from coterie.flower.algorithm import Added
from coterie.flower.memory import flat, shaped
from coterie.flower.messages import Array, Arrays

ME = np.zeros(1, dtype=np.int64)  # a stack of one node, which is the first


class Turn:
    """Local steps of one node, in a module of the author's: `step` stands for an optimiser's.

    `rates` has the learning rate of every batch to come, `kept` what the message brought and what
    this node keeps, by the names of `engine.memory`.
    """

    def __init__(
        self,
        added: Added,
        model: Arrays,
        kept: Arrays,
        net: nn.Module,
        rates: Sequence[float],
        mean_steps: float,
        *,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        """Put the model that came into the module."""
        if momentum and not added.update.momentum:
            raise FlowerError(f"{added.name} corrects plain SGD only; set momentum to 0")
        if not rates:
            raise FlowerError("rates must have the learning rate of every batch, got none")
        self._added, self._rates, self._taken = added, tuple(map(float, rates)), 0
        self._tensors = _loaded(net, model)
        parameters = {key: w for key, w in net.named_parameters() if w.requires_grad}
        self._trained = _trained(added, self._tensors, parameters)
        self._parameters = [parameters[key] for key in self._trained]
        ws = [w.data[None] for w in self._parameters]
        self._turns = _turns(added, model, kept, self._trained, ws[0].device, rates, mean_steps)
        self._at = self._turns.begin(ME).at
        rule = LocalRule(momentum, weight_decay, added.update)
        self._descent = Descent(rule, ws, self._at)

    def step(self) -> None:
        """Step along the parameters' gradients, by the next rate; without one it is zero."""
        if self._taken == len(self._rates):
            raise FlowerError(f"a turn of {self._taken} batches is over; give rates for them all")
        rate, self._taken = self._rates[self._taken], self._taken + 1
        grads = [torch.zeros_like(w) if w.grad is None else w.grad for w in self._parameters]
        self._descent.step([g[None] for g in grads], rate)

    def done(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return the model to send, and what the node keeps from now on."""
        if self._taken != len(self._rates):
            raise FlowerError(f"{self._taken} of {len(self._rates)} batches were taken in a turn")
        model = {key: w.cpu().numpy().copy() for key, w in self._tensors.items()}
        if self._at is not None:
            w = flat(model, self._trained).to(self._at.given.device)
            sent = self._turns.end(ME, w[None], self._at)[0]
            if self._added.update.send is not None:
                model = dict(shaped(sent.cpu(), model, self._trained))
        own = {key: array[0].cpu().numpy() for key, array in self._turns.own.items()}
        return model, own


def _loaded(net: nn.Module, model: Arrays) -> dict[str, Tensor]:
    """Put a model's arrays into a module; return its tensors, which they are from now on."""
    tensors = {key: w.detach() for key, w in net.state_dict().items()}
    if tensors.keys() != model.keys():
        there = sorted(tensors.keys() ^ model.keys())
        raise FlowerError(f"the model that came has other arrays: {', '.join(there[:3])}")
    for key, array in model.items():
        tensors[key].copy_(torch.from_numpy(np.array(array)))
    return tensors


def _trained(
    added: Added, tensors: Mapping[str, Tensor], parameters: Mapping[str, Tensor]
) -> tuple[str, ...]:
    """Name the parameters that are trained, in the server's order; refuse others than it names."""
    if added.plain:
        return tuple(parameters)
    for key in (*added.trained, *parameters):
        if key not in added.trained or key not in parameters:
            which = "is no parameter that is trained" if key in added.trained else "is trained"
            raise FlowerError(
                f"{key!r} {which} on this node, unlike at the server; give GroupStrategy the names "
                "of those that are, trained=[...]"
            )
    places = [w.data_ptr() for w in tensors.values() if w.numel()]
    if len(set(places)) < len(places):
        raise FlowerError(f"{added.name} needs arrays of their own, and two of the net's are one")
    return added.trained


def _turns(
    added: Added,
    model: Arrays,
    kept: Arrays,
    trained: Sequence[str],
    device: torch.device,
    rates: Sequence[float],
    mean_steps: float,
) -> Turns:
    """Return the engine's turn of one node, which takes a step for every batch."""
    memory = {}
    for key, array in kept.items():
        value = torch.from_numpy(np.array(array)).to(device)
        memory[key] = value[None] if key.startswith((OWN, GROUP)) else value
    if added.update.group is not None:
        memory[GROUPS] = torch.zeros(1, dtype=torch.int64, device=device)
    w = flat(model, trained).to(device)
    models = Models(w[None], ME, memory)
    steps = LocalSteps(sum(rates) / len(rates), 1.0, None, "batch", 0)
    rule, one = LocalRule(update=added.update), np.ones(1, dtype=np.int64)
    others = np.array([mean_steps])
    return Turns(rule, models, steps, 0, len(rates), one, ME, len(w), others, ME)
