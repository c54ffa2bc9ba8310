"""Options that several commands have: the same name, letter, place and words in all."""

from collections.abc import Iterator

import click
import pytest

from coterie.cli import main
from coterie.cli.options import Quantity
from coterie.core.errors import CoterieError
from coterie.core.units import MOST_MODEL_BYTES


def commands(group: click.Group = main, above: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield f"{above}{name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{above}{name} ")


def having(option: str) -> dict[str, click.Option]:
    """The option of that name in every command that has it."""
    return {
        name: found
        for name, command in commands()
        for found in command.params
        if isinstance(found, click.Option) and option in found.opts
    }


@pytest.mark.parametrize(
    ("option", "least"),
    [
        *(("--target", 5), ("--jobs", 4), ("--only", 2)),
        *((option, 4) for option in ("--lines", "--baseline", "--best", "--score")),
    ],
)
def test_what_means_the_same_everywhere_is_said_in_the_same_words(option: str, least: int) -> None:
    found = having(option)
    assert len(found) >= least
    assert len({each.help for each in found.values()}) == 1


@pytest.mark.parametrize(("option", "name"), [("--set", "overrides"), ("--json", "as_json")])
def test_what_means_nearly_the_same_begins_with_the_same_words(option: str, name: str) -> None:
    found = having(option)
    assert {each.name for each in found.values()} == {name}
    assert len({str(each.help)[:16] for each in found.values()}) == 1


def test_every_place_to_write_to_has_the_same_letter_and_says_what_it_is() -> None:
    found = having("--out")
    assert len(found) >= 11
    for name, option in found.items():
        assert option.opts == ["-o", "--out"], name
        assert option.metavar in ("DIR", "FILE", "PAGE", "PICTURE"), name
        assert option.required or "[" in str(option.help), f"{name} does not say where else"


def test_every_option_is_explained_in_one_sentence_that_begins_with_what_it_is() -> None:
    for name, command in commands():
        for option in command.params:
            if isinstance(option, click.Option):
                text = str(option.help)
                assert text.endswith("."), f"{name} {option.opts}: {text}"
                assert not text.startswith(("Of ", "A ", "The ")), f"{name} {option.opts}: {text}"


@pytest.mark.parametrize(
    "text", ["", "0", "0ms", "-1s", "2 hours", "nan", "inf", "s", "2MB", "1e400s"]
)
def test_a_time_is_above_zero_and_finite(text: str) -> None:
    with pytest.raises(CoterieError, match=r"^time must be a time such as 2s, .*, got "):
        Quantity("time").convert(text, None, None)


@pytest.mark.parametrize("text", ["0", "-5", "1.5", "0.1B", "5Mb", "1000000000001", "2TB", "x"])
def test_a_model_has_whole_bytes_above_zero(text: str) -> None:
    with pytest.raises(CoterieError, match=r"^size must be a size such as 5MB or 5MiB"):
        Quantity("size", most=MOST_MODEL_BYTES, whole=True).convert(text, None, None)


def test_every_option_that_is_a_size_or_a_time_takes_a_unit() -> None:
    for option, text, value in (
        ("--model-bytes", "1.5MiB", 1_572_864),
        ("--budget", "1.5h", 5400.0),
        ("--checkpoint-every", "5m", 300.0),
    ):
        found = having(option)
        assert found
        for each in found.values():
            assert each.type.convert(text, each, None) == value
    assert len(having("--model-bytes")) == 2


def numbers() -> dict[str, click.Option]:
    """Every option of every command that takes a number with parts."""
    return {
        f"{name} {found.opts[-1]}": found
        for name, command in commands()
        for found in command.params
        if isinstance(found, click.Option)
        and isinstance(found.type, click.types.FloatParamType | click.FloatRange | Quantity)
    }


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
def test_no_option_takes_a_number_that_is_none(value: str) -> None:
    found = numbers()
    assert len(found) >= 10
    for name, option in found.items():
        with pytest.raises((CoterieError, click.ClickException)) as refused:
            option.type.convert(value, option, None)
            pytest.fail(f"{name} takes {value}")
        assert option.opts[-1] in str(refused.value) or "range" in str(refused.value), name
        assert "\n" not in str(refused.value)
