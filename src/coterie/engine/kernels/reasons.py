"""Why a run does not train in compiled loops, in one sentence each."""

from torch import nn

from coterie.engine.kernels.dense import has_hooks
from coterie.engine.kernels.stages import WIDE, WRITTEN_OUT

SHORT = "the run is short: loading compiled loops takes longer than they save"
NO_NUMBA = "Numba is not installed: pip install 'coterie[fast]'"
NOT_LOADED = "Numba cannot be loaded: its version may not go with this NumPy"
ADDED = "the algorithm or the optimiser adds to plain SGD"
FULL = "train.batch_size is 'full'"
OTHER_TASK = "the task is not classification by cross-entropy"
OTHER_DEVICE = "train.device is not cpu"
OTHER_NUMBERS = "the model's numbers are neither float32 nor float64"
OTHER_LABELS = "a label is not a class that the model scores"
ON_RAY = "train.engine is 'ray', which does not use compiled loops"
SEQUENTIAL = "train.engine is 'sequential', which does not use compiled loops"


def why_not_written_out(model: nn.Module, row: nn.Module | None) -> str:
    """Say what of a module, whose row of layers is given if it has one, stands in the way.

    >>> row = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
    >>> why_not_written_out(row, row)
    'the model has GELU, which is not written out'
    """
    for module in model.modules():
        if not (list(module.children()) or type(module) in WRITTEN_OUT):
            return f"the model has {type(module).__name__}, which is not written out"
    if has_hooks(model):
        return "the model has hooks"
    if row is None:
        return "the model's forward is not a row of layers"
    if not all(w.requires_grad for w in model.parameters()):
        return "a part of the model is frozen"
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.out_channels % WIDE:
            channels = module.out_channels
            return f"the model has a convolution of {channels} channels, not a multiple of {WIDE}"
    return "the model's layers, or their order, are not written out"
