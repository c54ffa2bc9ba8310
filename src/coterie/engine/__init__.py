"""How local steps are computed: the contract, a plain engine, a fast one, one on Ray."""

from coterie._moved import forward

_BEFORE = {
    "Engine": "coterie.engine.contract",
    "Gradients": "coterie.engine.contract",
    "LocalSteps": "coterie.engine.contract",
    "Measured": "coterie.engine.contract",
    "Models": "coterie.engine.contract",
    "Score": "coterie.engine.contract",
}


def __getattr__(name: str) -> object:
    return forward(__name__, _BEFORE, name)
