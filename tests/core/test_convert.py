"""Values from files: what does not fit is named in one line, with its place and value."""

from typing import Annotated

import pytest
from msgspec import Meta, Struct

from coterie.core.convert import convert


class Part(Struct, forbid_unknown_fields=True):
    size: Annotated[int, Meta(ge=1)]
    share: float | None = None

    def __post_init__(self) -> None:
        if self.size == 13:
            raise ValueError("13 brings bad luck")


class Whole(Struct):
    parts: Annotated[list[Part], Meta(min_length=1)]
    by_name: dict[str, int] = {}


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ([], "must be an object, got []"),
        ({}, "has no 'parts'"),
        ({"parts": []}, "parts must be of length >= 1, got []"),
        ({"parts": [{"size": 1}, 2]}, "parts[1] must be an object, got 2"),
        ({"parts": [{"size": 1}, {}]}, "parts[1]: has no 'size'"),
        ({"parts": [{"size": 0}]}, "parts[0].size must be >= 1, got 0"),
        ({"parts": [{"size": True}]}, "parts[0].size must be a whole number, got True"),
        ({"parts": [{"size": 1, "share": "x"}]}, "parts[0].share must be a number, got 'x'"),
        ({"parts": [{"size": 1, "share": 10**400}]}, "parts[0].share must be a number, got 1000"),
        ({"parts": [{"size": 1, "a\nb": 2}]}, "parts[0]: unknown 'a\\nb'"),
        ({"parts": [{"size": 1, "a\nb - at `$.c": 2}]}, "Object contains unknown field `a b"),
        ({"parts": [{"size": 13}]}, "parts[0]: 13 brings bad luck"),
        ({"parts": [{"size": 1}], "\ud800": 1}, "has text of half characters, '\\ud800'"),
        ({"parts": [{"size": 1}], "by_name": {"a": "b"}}, "by_name[...] must be a whole number"),
    ],
)
def test_what_does_not_fit_is_named_in_one_line(raw: object, says: str) -> None:
    with pytest.raises(ValueError, match=r"^file: ") as refused:
        convert(raw, Whole, "file")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_fits_is_a_value_of_the_type() -> None:
    assert convert({"parts": [{"size": 2, "share": 1}]}, Whole, "file") == Whole([Part(2, 1.0)])
