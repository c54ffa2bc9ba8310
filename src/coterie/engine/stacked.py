"""Any module that treats examples one by one: torch.func runs many nodes' models as one."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from coterie.engine import Ints, LocalSteps
from coterie.engine.batching import batches_of
from coterie.engine.descent import Descent, LocalRule
from coterie.engine.module import Shards, inputs
from coterie.engine.single import Single, split

STACK_BYTES = 8 << 20
MOST_STACKED = 64


class Stacked:
    """Trains nodes by a vectorised gradient of their module; full-data gradients node by node."""

    name = "stacked"

    def __init__(self, model: nn.Module, shards: Shards, one_by_one: Single) -> None:
        """Take the module, the nodes' data, and who else knows its gradients."""
        self._shards, self._single = shards, one_by_one
        self._names = [k for k, w in model.named_parameters() if w.requires_grad]
        self._shapes = [w[None] for w in model.parameters() if w.requires_grad]
        fixed = {k: w.detach() for k, w in model.named_parameters() if not w.requires_grad}
        fixed |= dict(model.named_buffers())
        self._bytes = 4 * sum(w.numel() for w in self._shapes)

        def loss(ws: list[Tensor], x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
            named = fixed | dict(zip(self._names, ws, strict=True))
            each = cross_entropy(functional_call(model, named, (x,)), y, reduction="none")
            return (each * weights).sum()

        self._gradient: Callable[..., list[Tensor]] = vmap(grad(loss), randomness="error")

    def stack(self, batch: int) -> int:
        """Return how many nodes are trained together."""
        return max(1, min(MOST_STACKED, STACK_BYTES // self._bytes))

    def train(
        self,
        w: Tensor,
        rows: Tensor,
        nodes: Ints,
        start: int,
        stop: int,
        steps: LocalSteps,
        rule: LocalRule,
        pull: Tensor | None,
    ) -> list[Tensor]:
        """Take steps start+1 .. stop from the models w[rows], returned [c, d] in a list."""
        found = w.index_select(0, rows)
        ws = split(found, self._shapes)
        descent = Descent(rule, ws, None if pull is None else split(pull, self._shapes))
        for t in range(start + 1, stop + 1):
            lr = steps.lr_at(t)
            for batch in batches_of(self._shards, nodes, t, steps):
                index = torch.from_numpy(batch.rows.reshape(-1)).to(w.device)
                x = inputs(self._shards.x.index_select(0, index))
                x = x.view(*batch.rows.shape, *x.shape[1:])
                y = self._shards.y.index_select(0, index).view(batch.rows.shape)
                weights = torch.zeros(batch.rows.shape, device=w.device)
                each = batch.weights
                weights += each.to(w.device)[..., 0] if isinstance(each, Tensor) else each
                now = [part[: len(x)] for part in ws]
                descent.step(self._gradient(now, x, y, weights), lr)
        return [found]

    def gradients(self, w: Tensor, nodes: Ints, out: Tensor) -> Tensor:
        """Full-data losses [c] at one model w [d]; the gradients go to out [c, d]."""
        return self._single.gradients(w, nodes, out)

    def weighted(self, w: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        """Gradient [d] of the weighted sum of some examples' losses at one model w."""
        return self._single.weighted(w, index, weights)


def treats_examples_alone(model: nn.Module, x: Tensor) -> bool:
    """Whether a module in training mode is a function of each example and its parameters alone.

    Not so with batch norm, which mixes a batch, with dropout, which draws random numbers, or with
    anything that changes its buffers; these run one node at a time.
    """
    generator = torch.Generator().manual_seed(0)
    some = torch.rand((4, *x.shape[1:]), generator=generator).to(x.device)
    before = [b.clone() for b in model.buffers()]
    state = torch.default_generator.get_state()
    was = model.training
    try:
        with torch.no_grad():
            model.train()
            whole, halves = model(some.clone()), [model(some[k : k + 2].clone()) for k in (0, 2)]
        same = torch.allclose(whole, torch.cat(halves), rtol=1e-4, atol=1e-5)
        unchanged = all(torch.equal(a, b) for a, b in zip(before, model.buffers(), strict=True))
        drawn = not torch.equal(state, torch.default_generator.get_state())
    except (RuntimeError, ValueError):
        return False
    finally:
        with torch.no_grad():
            for buffer, value in zip(model.buffers(), before, strict=True):
                buffer.copy_(value)
        torch.default_generator.set_state(state)
        model.train(was)
    return same and unchanged and not drawn
