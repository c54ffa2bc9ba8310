"""From an experiment file to the parts of a run."""

from coterie._moved import forward

_BEFORE = {
    "expand": "coterie.config.files",
    "flat": "coterie.config.files",
    "load_experiment": "coterie.config.files",
    "make_config": "coterie.config.files",
    "parse_override": "coterie.config.files",
    "to_toml": "coterie.config.files",
}


def __getattr__(name: str) -> object:
    return forward(__name__, _BEFORE, name)
