"""TOML that nobody writes by accident: one line, whatever it is."""

import pytest

from coterie.config.toml import DEEPEST, read_toml
from coterie.core.errors import short


@pytest.mark.parametrize("deep", [DEEPEST + 1, 500, 5000])
@pytest.mark.parametrize("kind", ["lists", "tables", "keys", "section"])
def test_what_is_nested_too_deep_is_a_line(deep: int, kind: str) -> None:
    text = {
        "lists": "a = " + deep * "[" + deep * "]",
        "tables": "a = " + deep * "{a = " + "1" + deep * "}",
        "keys": ".".join((deep + 1) * "a") + " = 1",
        "section": f"[{'.'.join((deep + 1) * 'a')}]",
    }[kind]
    with pytest.raises(ValueError, match=f"^tables or lists are nested more than {DEEPEST} deep$"):
        read_toml(text)


def test_what_is_nested_as_deep_as_allowed_is_read() -> None:
    assert read_toml("a = " + DEEPEST * "[" + DEEPEST * "]")["a"]


def test_a_number_of_too_many_digits_is_a_line() -> None:
    with pytest.raises(ValueError, match=r"^a whole number has more than 4,300 digits$"):
        read_toml("a = " + 5000 * "9")
    assert read_toml("a = " + 4000 * "9")["a"] > 10**3999


@pytest.mark.parametrize(
    "value", [10**4000, "x" * 10**6, 500 * [500 * ["x" * 500]], {"a": "b" * 999}]
)
def test_whatever_is_shown_in_an_error_is_short(value: object) -> None:
    assert len(short(value)) <= 303
    assert "\n" not in short(value)
