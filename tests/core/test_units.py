"""Sizes, rates and times: what is read, what is refused, and that bare numbers stay themselves."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.units import Kind, has_unit, quantity


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        *(("1", 1), ("7B", 7), ("2kB", 2e3), ("2KB", 2e3), ("5MB", 5e6), ("1.5GB", 1.5e9)),
        *(("1TB", 1e12), ("1KiB", 1024), ("5MiB", 5 * 2**20), ("1GiB", 2**30)),
        *((" 5 MB ", 5e6), ("5megabytes", None), ("5MByte", 5e6), ("3 bytes", 3), ("1e3kB", 1e6)),
        *(("5mb", None), ("5Mb", None), ("5Mbit", None), ("5MB/s", None), ("5ms", None)),
        *(("MB", None), ("5 5MB", None), ("1_0MB", None), ("0x5MB", None), ("", None)),
        *(("\u0665MB", None), ("five", None), ("5MB,", None)),
    ],
)
def test_a_size_is_in_bytes(text: str, nbytes: float | None) -> None:
    check(text, "size", nbytes)


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        *(("8bit", 1), ("100Mbit", 12.5e6), ("100mbit/s", 12.5e6), ("1Gbit/s", 125e6)),
        *(("1Gbps", 125e6), ("64kbps", 8e3), ("8Mibit", 2**20), ("8Kibit/s", 1024)),
        *(("12.5MB", 12.5e6), ("12.5MB/s", 12.5e6), ("3MByte/s", 3e6), ("2MiB/s", 2**21)),
        *(("5Mb", None), ("5mb/s", None), ("5M", None), ("5ms", None), ("5/s", None)),
    ],
)
def test_a_rate_is_in_bytes_a_second(text: str, bytes_per_s: float | None) -> None:
    check(text, "rate", bytes_per_s)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("2", 2), ("2s", 2), ("500ms", 0.5), ("20 us", 2e-5), ("1m", 60), ("3min", 180)),
        *(("1.5h", 5400), ("2d", 172_800), (".5s", 0.5), ("-1s", -1)),
        *(("1H", None), ("2M", None), ("5MB", None), ("1h30m", None), ("2 weeks", None)),
    ],
)
def test_a_time_is_in_seconds(text: str, seconds: float | None) -> None:
    check(text, "time", seconds)


def check(text: str, kind: Kind, wanted: float | None) -> None:
    if wanted is None:
        with pytest.raises(ValueError, match=f"^must be a {kind} such as .*, got ") as refused:
            quantity(text, kind)
        assert "\n" not in str(refused.value)
    else:
        assert quantity(text, kind) == pytest.approx(wanted, rel=1e-15)


@given(st.floats(allow_nan=False), st.sampled_from([1.0, 1e6, 1e-3, 125e3]))
def test_a_bare_number_counts_in_the_unit_of_its_place(value: float, plain: float) -> None:
    wanted = value / 1000 if plain == 1e-3 else value * plain
    assert quantity(repr(value), "rate", plain) == wanted
    assert not has_unit(repr(value))


@given(st.text(max_size=12), st.sampled_from(["size", "rate", "time"]))
def test_whatever_is_written_is_a_number_or_our_error(text: str, kind: Kind) -> None:
    try:
        value = quantity(text, kind)
    except ValueError as error:
        assert str(error).startswith(f"must be a {kind} such as ")
        assert "\n" not in str(error)
    else:
        assert isinstance(value, float)
        assert not math.isnan(value) or "nan" in text.lower()
