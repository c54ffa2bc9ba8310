"""Limits of an algorithm's options, said as those of settings are."""

from coterie.core.errors import ConfigError

MOST = 1e38  # a number in single precision


def at_least(name: str, value: float, least: float) -> None:
    """Refuse an option that is too small, or beyond single precision."""
    _at_most(name, value)
    if not value >= least:
        raise ConfigError(f"algorithm.options.{name} must be >= {least:g}, got {value:g}")


def above(name: str, value: float, bound: float) -> None:
    """Refuse an option that is not above a bound, or is beyond single precision."""
    _at_most(name, value)
    if not value > bound:
        raise ConfigError(f"algorithm.options.{name} must be > {bound:g}, got {value:g}")


def within(name: str, value: float) -> None:
    """Refuse an option that is not a share: 0 to below 1."""
    if not 0 <= value < 1:
        raise ConfigError(f"algorithm.options.{name} must be from 0 to below 1, got {value:g}")


def _at_most(name: str, value: float) -> None:
    if value > MOST:
        raise ConfigError(f"algorithm.options.{name} must be <= {MOST:g}, got {value:g}")
