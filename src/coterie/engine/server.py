"""What follows a mean: what groups and the server keep, and what the server makes of the model."""

from typing import TYPE_CHECKING

from coterie.core.arrays import Floats, Ints
from coterie.engine.contract import Models
from coterie.engine.memory import (
    COMMON,
    GROUP,
    LAST,
    OWN,
    regrouped,
    remembered,
    remembering,
    theirs,
)
from coterie.engine.update import Mean, Scope, Update

if TYPE_CHECKING:
    from torch import Tensor


def after_mean(
    update: Update, models: Models, d: int, p: Floats, z: Ints, share: float, *, everyone: bool
) -> Models:
    """Return the models that follow a mean of groups z [n], or of everyone.

    p [n] are the nodes' shares of the data, `share` that of those who counted, and d of the models'
    numbers are trained; others, such as a batch norm's statistics, are averaged and no more.
    """
    if update.group is None and not (everyone and update.server):
        return models
    groups = models.w.new_tensor(z, device="cpu").long()
    scope: Scope = "global" if everyone else "group"
    models = regrouped(update, models, groups, d)
    mean = _mean(models, d, p, groups, share, scope)
    if update.group is not None:
        models = remembering(models, GROUP, update.group(mean))
        mean = _mean(models, d, p, groups, share, scope)
    if not everyone or update.server is None:
        return models
    w = models.w.clone()
    w[0, :d], kept = update.server(models.w[0, :d], mean)
    models = remembering(Models(w, models.of_node, models.memory), COMMON, kept)
    return remembering(models, "", {LAST: w[0, :d].clone()})


def _mean(models: Models, d: int, p: Floats, z: "Tensor", share: float, scope: Scope) -> Mean:
    own, group, common = (theirs(remembered(models, kind)) for kind in (OWN, GROUP, COMMON))
    last = models.memory.get(LAST, models.w[0, :d])
    shares, z = (array.to(models.w.device) for array in (models.w.new_tensor(p, device="cpu"), z))
    return Mean(last, own, group, common, shares, z, share, scope)
