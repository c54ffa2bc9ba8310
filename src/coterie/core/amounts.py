"""Times and sizes as people write them: 1.5 h, 20 GB."""

TIMES = ((86_400.0, "days"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))
SIZES = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))
HOURS = 48  # from which days are written


def duration(seconds: float) -> str:
    """Write a time by its largest unit; days from two of them.

    >>> duration(0.0125), duration(59.94), duration(754.0), duration(36_000.0), duration(3e5)
    ('12.5 ms', '59.9 s', '12.6 min', '10 h', '3.47 days')
    """
    units = TIMES if seconds >= HOURS * 3_600 else TIMES[1:]
    return _written(seconds, units)


def size(nbytes: float) -> str:
    """Write a number of bytes by its largest unit.

    >>> size(12), size(1_476_392), size(2.5e13)
    ('12 bytes', '1.48 MB', '25 TB')
    """
    return _written(nbytes, SIZES)


def _written(value: float, units: tuple[tuple[float, str], ...]) -> str:
    unit, name = next((each for each in units if value >= each[0]), units[-1])
    return f"{value / unit:.3g} {name}"
