"""What the server does with a global mean: takes it, or steps towards it (FedOpt)."""

from dataclasses import dataclass, replace
from typing import Literal

from coterie.engine.contract import Models

ServerKind = Literal["mean", "momentum", "adam"]


@dataclass(frozen=True)
class Server:
    """Treats the way from the last global model to the new mean as a gradient (Reddi et al. 2021).

    Only the first `d` numbers, those that are trained, are stepped; others, such as a batch norm's
    statistics, are averaged. What it remembers is in the models' memory.
    """

    kind: ServerKind = "mean"
    d: int = 0
    lr: float = 1.0
    momentum: float = 0.9  # Adam's beta1
    beta2: float = 0.99
    epsilon: float = 1e-3

    def begin(self, models: Models) -> Models:
        """Remember the model that everybody starts from."""
        if self.kind == "mean":
            return models
        w = models.w[0, : self.d].clone()
        memory = {"server.w": w, "server.m": w.new_zeros(w.shape)}
        if self.kind == "adam":
            memory["server.v"] = w.new_zeros(w.shape)
        return replace(models, memory={**models.memory, **memory})

    def after(self, models: Models) -> Models:
        """Return the global model that follows a global mean."""
        if self.kind == "mean":
            return models
        memory = dict(models.memory)
        way = models.w[0, : self.d] - memory["server.w"]
        m = self.momentum * memory["server.m"]
        if self.kind == "momentum":
            m = step = m + way
        else:
            m = m + (1 - self.momentum) * way
            memory["server.v"] = self.beta2 * memory["server.v"] + (1 - self.beta2) * way.square()
            step = m / (memory["server.v"].sqrt() + self.epsilon)
        memory["server.m"] = m
        memory["server.w"] = memory["server.w"] + self.lr * step
        w = models.w.clone()
        w[0, : self.d] = memory["server.w"]
        return replace(models, w=w, memory=memory)
