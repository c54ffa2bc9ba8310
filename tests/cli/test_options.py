"""Options that several commands have: the same name, letter, place and words in all."""

from collections.abc import Iterator

import click
import pytest

from coterie.cli import main


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
