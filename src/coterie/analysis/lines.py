"""Which runs stand side by side, which of them are one line, and what a line is called."""

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any, NamedTuple

from coterie.analysis.score import Score, read_score
from coterie.config.files import LABEL, decides, flat
from coterie.config.schema import unknown_setting
from coterie.config.settings import AlgorithmConfig, Config
from coterie.core.errors import ConfigError, RecordError, did_you_mean
from coterie.core.types import Json
from coterie.runs.record import RecordedRun, settings_of
from coterie.simulation.algorithms import ALGORITHMS, MAKERS
from coterie.simulation.search import Search

BASELINE = "fedavg"
DEFAULT_GROUPING = Search().method
OPEN = ("num_groups", "tau1", "tau2")  # what a run may choose itself
TARGETS = ("target_accuracy", "target_loss", "max_gbytes", "retune")  # and by what
USUAL = {key: getattr(AlgorithmConfig(), key) for key in (*OPEN, *TARGETS)}
DEFAULTS = flat(Config())
NAME, GROUPING, OPTIONS = "algorithm.name", "algorithm.grouping", "algorithm.options"
GROUPS = "algorithm.groups"
TUNED = ("train.lr", "train.lr_decay")  # what may go with a label, beside [algorithm], [optimizer]
LATER = {  # settings that older runs have not, and what they did
    "data.split": "pooled",
    "data.scored": "test",
}
MEASURED = ("train.measure", "train.measure_groups")  # which change no result
UNSEARCHED = ("name", "options", "groups")  # of [algorithm], read without a search for groups, too


@dataclass(frozen=True)
class View:
    """How a person wants to see runs.

    `lines` are settings that name lines, `best` those of which every line shows its best value by
    the validation part; `baseline` is the line that targets and speed-ups refer to.
    """

    lines: tuple[str, ...] = ()  # none: labels, else the algorithm and what belongs to it
    baseline: str = ""  # none: fedavg, where there is one
    best: tuple[str, ...] = ()
    score: Score = field(default_factory=Score)


PLAIN = View()


def read_view(lines: str = "", baseline: str = "", best: str = "", score: str = "last") -> View:
    """Read a view as the command line has it, settings with commas between them.

    >>> read_view("optimizer.fedprox, algorithm.name").lines
    ('optimizer.fedprox', 'algorithm.name')
    """
    named, chosen = (_keys(*pair) for pair in (("--lines", lines), ("--best", best)))
    both = [key for key in named if key in chosen]
    if both:
        raise ConfigError(f"{both[0]} must be in --lines or in --best, got it in both")
    if LABEL in chosen:
        raise ConfigError("--best takes settings that change a result, got label")
    return View(named, baseline, chosen, read_score(score))


def _keys(option: str, text: str) -> tuple[str, ...]:
    keys = tuple(dict.fromkeys(key.strip() for key in text.split(",") if key.strip()))
    for key in keys:
        if key == "seed" or (key in DEFAULTS and key != LABEL and not decides(key)):
            raise ConfigError(f"{option} takes settings that tell lines apart, got {key}")
        if key == OPTIONS:
            raise ConfigError(f"{option}: {key} is a table; name one of them, such as {key}.mu")
        if key not in DEFAULTS and not key.startswith(f"{OPTIONS}."):
            raise ConfigError(f"{option}: {unknown_setting(Config, key)}")
    return keys


@dataclass(frozen=True)
class Naming:
    """What the names of lines are made of: `chosen` settings, or an algorithm and `more` of them.

    `words` is what each setting is called, and `long` has algorithms whose last word another has.
    """

    chosen: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    best: tuple[str, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    long: frozenset[str] = frozenset()
    auto: frozenset[str] = frozenset()  # algorithms of which some runs leave groups to them


ALONE = Naming()  # a run by itself


def naming_of(configs: Sequence[Json], view: View = PLAIN) -> Naming:
    """Decide what tells the lines of some runs apart; what all have in common names none."""
    tables = [settings_of(config) for config in configs]
    more = [key for key in differing(tables) if _names_lines(key) and key not in view.best]
    leaves = [key.rpartition(".")[2] for key in (view.lines or more)]
    words = {
        key: leaf if leaves.count(leaf) == 1 else key
        for key, leaf in zip(view.lines or more, leaves, strict=True)
    }
    names = {str(table.get(NAME)) for table in tables}
    lasts = [_last_word(name) for name in names]
    long = frozenset(name for name in names if lasts.count(_last_word(name)) > 1)
    auto = frozenset(str(table.get(NAME)) for table in tables if table.get(GROUPS) == "auto")
    return Naming(view.lines, tuple(more), view.best, words, long, auto)


def _names_lines(key: str) -> bool:
    """Whether a setting names lines where nobody says what does."""
    section, _, rest = key.partition(".")
    of_algorithm = section == "algorithm" and rest not in (*OPEN, *TARGETS, "name", "grouping")
    return section == "optimizer" or of_algorithm


def name_of(config: Json, naming: Naming = ALONE) -> str:
    """Name the line of a run of some settings: by those chosen, by its label, or by its algorithm.

    >>> name_of({"algorithm": {"name": "my_pkg.algos:feddyn"}})
    'feddyn'
    """
    said = str(config.get(LABEL) or "")
    if naming.chosen:
        return _by_settings(config, naming, said)
    return said or _by_algorithm(config, naming)


def _by_settings(config: Json, naming: Naming, said: str) -> str:
    table = settings_of(config)
    heads = [key for key in naming.chosen if key in (LABEL, NAME)]
    algorithm = _short(str(table.get(NAME)), naming)
    head = " ".join(
        dict.fromkeys(said or algorithm if key == LABEL else algorithm for key in heads)
    )
    rest = [key for key in naming.chosen if key not in heads]
    shown = [key for key in rest if not head or _unusual(key, table, naming)]
    more = ", ".join(_said(naming.words[key], _value(key, table)) for key in shown)
    return f"{head} ({more})" if head and more else head or more


def _by_algorithm(config: Json, naming: Naming) -> str:
    """Name an algorithm, its grouping if not the default, what it chose, and what else differs."""
    algorithm, table = config["algorithm"], settings_of(config)
    grouping, searches = algorithm.get("grouping", DEFAULT_GROUPING), _searches(algorithm)
    shows = searches and grouping != DEFAULT_GROUPING and GROUPING not in naming.best
    more = [str(grouping)] if shows else []
    if any(algorithm.get(key) == "auto" for key in OPEN):
        more += ["auto", *(f"{key} = {value}" for key, value in _told(algorithm).items())]
    more += [
        _said(naming.words[key], table[key])
        for key in naming.more
        if _unusual(key, table, naming) and (searches or not _is_of_a_search(key))
    ]
    name = _short(str(algorithm["name"]), naming)
    return f"{name} ({', '.join(more)})" if more else name


def _searches(algorithm: Json) -> bool:
    """Whether settings of a search are read; they may be by an algorithm that is not ours."""
    known = ALGORITHMS.get(str(algorithm["name"]))
    return known is None or known.searched or algorithm.get("groups") == "search"


def _is_of_a_search(key: str) -> bool:
    section, name, *_ = (*key.split("."), "")
    return section == "algorithm" and name not in UNSEARCHED


def _unusual(key: str, table: Json, naming: Naming) -> bool:
    """Whether a setting is not as by default; the groups that an algorithm has anyway are.

    No groups are usual for an algorithm that is not ours, unless runs without that setting, whose
    groups are not known here, have its name already.
    """
    name = str(table.get(NAME))
    known = ALGORITHMS.get(name)
    usual = known.groups if known else None if name in naming.auto else "none"
    if key == GROUPS and table.get(key) == usual:
        return False
    return table.get(key) not in (None, DEFAULTS.get(key))


def _value(key: str, table: Json) -> Any:
    """Return a setting; an option that is not set is at its default, where the algorithm is ours.

    >>> _value("algorithm.options.mu", {"algorithm.name": "fedprox"})
    0.01
    """
    make = MAKERS.get(str(table.get(NAME)))
    if key in table or make is None or not key.startswith(f"{OPTIONS}."):
        return table.get(key)
    option = inspect.signature(make).parameters.get(key.removeprefix(f"{OPTIONS}."))
    return None if option is None else option.default


def _told(algorithm: Json) -> Json:
    """Return what a run that chooses was told: what is not open, and targets not as by default."""
    given = {key: algorithm.get(key, usual) for key, usual in USUAL.items()}
    return {
        key: value
        for key, value in given.items()
        if value != ("auto" if key in OPEN else USUAL[key])
    }


def _said(word: str, value: object) -> str:
    """Write a setting in the name of a line.

    >>> _said("scaffold", True), _said("anneal", False), _said("fedprox", 0.1)
    ('scaffold', 'anneal = false', 'fedprox = 0.1')
    """
    if value is True:
        return word
    return f"{word} = {str(value).lower() if value in (False, None) else value}"


def _short(name: str, naming: Naming) -> str:
    return name if name in naming.long else _last_word(name)


def _last_word(name: str) -> str:
    return name.rpartition(":")[2] or name


def pooled(run: RecordedRun) -> bool:
    """Whether a run trained on all data in one place: an upper bound that no network slows."""
    known = ALGORITHMS.get(str(run.config["algorithm"]["name"]))
    return known is not None and known.pooled


def label(run: RecordedRun, naming: Naming = ALONE) -> str:
    """Name a run's line; one that is not complete is named so, and is on a line of its own."""
    name, status = name_of(run.config, naming), run.summary["status"]
    return name if status == "complete" else f"{name} ({status})"


def lines_of(runs: Sequence[RecordedRun], naming: Naming = ALONE) -> dict[str, list[RecordedRun]]:
    """Return the runs of every line of a block by seed, in the order of its table.

    Of runs with the same label and seed, which are equal, the first counts.
    """
    found: dict[str, dict[int, RecordedRun]] = {}
    for run in runs:
        found.setdefault(label(run, naming), {}).setdefault(run.config["seed"], run)
    known = list(ALGORITHMS)

    def place(line: str) -> tuple[int, list[tuple[float, str]]]:
        first = next(iter(found[line].values()))
        name = str(first.config["algorithm"]["name"])
        return known.index(name) if name in known else len(known), _natural(line)

    order = sorted(found, key=place)
    return {line: [found[line][seed] for seed in sorted(found[line])] for line in order}


def _natural(text: str) -> list[tuple[float, str]]:
    """Make a key by which 5 comes before 10.

    >>> sorted(["tau1 = 10", "tau1 = 5"], key=_natural)
    ['tau1 = 5', 'tau1 = 10']
    """
    parts = re.split(r"(\d+(?:\.\d+)?(?:e-?\d+)?)", text)
    return [(float(part), "") if at % 2 else (0.0, part) for at, part in enumerate(parts)]


def baseline_of(names: Iterable[str], view: View = PLAIN) -> str | None:
    """Return which line is the baseline, in whatever case it is written; None if there is none."""
    wanted = view.baseline or BASELINE
    alike = [name for name in names if name.lower() == wanted.lower()]
    return wanted if wanted in alike else next(iter(alike), None)


@dataclass(frozen=True, eq=False)
class Arranged:
    """The runs of one block, line by line; `chosen` are the best settings of every line."""

    setting: Json  # what tells this block from the others
    lines: dict[str, list[RecordedRun]]
    chosen: dict[str, Json]
    members: list[RecordedRun]  # all of the block, also those that no line shows
    repeated: int
    naming: Naming
    tried: dict[str, list[Json]] = field(default_factory=dict)  # values that `chosen` is from

    @property
    def shown(self) -> list[RecordedRun]:
        """The runs that lines are made of."""
        return [run for runs in self.lines.values() for run in runs]


def arrange(
    runs: Sequence[RecordedRun], view: View = PLAIN, expected: Sequence[Json] = ()
) -> list[Arranged]:
    """Put runs into blocks, and those of a block into lines.

    Settings that neither name lines nor are chosen by `best` split blocks where they differ; but
    not those of a method if a label, which names a line, goes with one value of them. `expected`
    are the configs of runs to come, which have a say in that.
    """
    configs = [run.config for run in runs]
    naming = naming_of([*expected, *configs], view)
    _check_baseline([*expected, *configs], view, naming)
    tables = [_block_table(config, naming) for config in configs]
    to_come = [_block_table(config, naming) for config in expected]
    owners = [_owner(config, naming) for config in (*configs, *expected)]
    keys = differing(tables)
    kept = _splitting([*tables, *to_come], owners, keys)
    blocks: dict[str, list[int]] = {}
    for at, table in enumerate(tables):
        blocks.setdefault(str({key: table.get(key) for key in kept}), []).append(at)
    parts = list(blocks.values())
    telling = [key for key in keys if key in kept or _is_even(key, tables, parts)]
    arranged = [
        _arranged(
            {key: tables[own[0]].get(key) for key in telling}, [runs[at] for at in own], naming
        )
        for own in parts
    ]
    return [block for block in arranged if block.lines]  # none as long as no run is complete


def _check_baseline(configs: Sequence[Json], view: View, naming: Naming) -> None:
    algorithm_of = {name_of(config, naming): config["algorithm"]["name"] for config in configs}
    if not view.baseline or not algorithm_of or baseline_of(algorithm_of, view) is not None:
        return
    wanted = view.baseline.lower()
    meant = [name for name, of in algorithm_of.items() if _last_word(str(of)).lower() == wanted]
    meant += [name for name in algorithm_of if name.lower().startswith(wanted)]
    rest = f"; did you mean {meant[0]!r}?" if meant else did_you_mean(view.baseline, algorithm_of)
    raise ConfigError(f"--baseline: no line is called {view.baseline!r}{rest}")


def _owner(config: Json, naming: Naming) -> str:
    """Return the label that a run's line has, with what else names it; "" if it has no label."""
    said = str(config.get(LABEL) or "")
    if not naming.chosen or not said:
        return said
    table = settings_of(config)
    return str((said, [table.get(k) for k in naming.chosen])) if LABEL in naming.chosen else ""


def _block_table(config: Json, naming: Naming) -> Json:
    """Return the settings that may split blocks; what a run chose itself, as by default."""
    given = settings_of(config)
    table = {**{key: value for key, value in LATER.items() if key not in given}, **given}
    named = {*naming.chosen, *naming.best, *MEASURED}
    if LABEL in named and not config.get(LABEL):  # then the algorithm stands for the label
        named.add(NAME)
    if not naming.chosen and not _owner(config, naming):  # then the algorithm names the line
        named |= {NAME, GROUPING, *(key for key in table if _names_lines(key))}
        if any(table.get(f"algorithm.{key}") == "auto" for key in OPEN):
            table = {**table, **{f"algorithm.{key}": value for key, value in USUAL.items()}}
    return {key: value for key, value in table.items() if key not in named}


def _splitting(tables: Sequence[Json], owners: Sequence[str], keys: Sequence[str]) -> list[str]:
    """Leave out what is of a method and follows from the label and the others, the last first."""
    kept = list(keys)
    for key in filter(_is_of_a_method, reversed(keys)):
        rest = [other for other in kept if other != key]
        values: dict[str, set[str]] = {}
        for table, owner in zip(tables, owners, strict=True):
            at = str((owner, [table.get(other) for other in rest]))
            values.setdefault(at, set()).add(str(table.get(key)))
        if all(len(each) == 1 for each in values.values()):
            kept = rest
    return kept


def _is_of_a_method(key: str) -> bool:
    """Whether a setting says how to train, so that labels may stand for it; not on what, or where.

    >>> _is_of_a_method("algorithm.tau1"), _is_of_a_method("train.lr"), _is_of_a_method("data.name")
    (True, True, False)
    """
    return key.partition(".")[0] in ("algorithm", "optimizer") or key in TUNED


def _is_even(key: str, tables: Sequence[Json], parts: Sequence[Sequence[int]]) -> bool:
    """Whether every block has one value of a setting, and none has no value."""
    found = [{str(tables[at].get(key)) for at in part} for part in parts]
    return all(len(values) == 1 and "None" not in values for values in found)


def _arranged(setting: Json, runs: list[RecordedRun], naming: Naming) -> Arranged:
    if not naming.best:
        lines = lines_of(runs, naming)
        repeated = len(runs) - sum(map(len, lines.values()))
        return Arranged(setting, lines, {}, runs, repeated, naming)
    done = [run for run in runs if run.summary["status"] == "complete"]
    by_line: dict[str, list[RecordedRun]] = {}
    for run in done:
        by_line.setdefault(label(run, naming), []).append(run)
    taken = {line: _best(own, naming.best) for line, own in by_line.items()}
    lines = lines_of([run for best in taken.values() for run in best.runs], naming)
    chosen = {line: taken[line].values for line in lines}
    tried = {line: taken[line].tried for line in lines}
    repeated = sum(best.repeated for best in taken.values())
    return Arranged(setting, lines, chosen, runs, repeated, naming, tried)


class Best(NamedTuple):
    """The best values of some settings, their runs, how many of all repeat others, all values."""

    values: Json
    runs: list[RecordedRun]
    repeated: int
    tried: list[Json]


def _best(runs: Sequence[RecordedRun], keys: Sequence[str]) -> Best:
    """Choose the values of some settings whose runs did best on the validation part.

    Those with more seeds come first, and of equal ones the smaller value.
    """
    found: dict[str, tuple[Json, dict[int, RecordedRun]]] = {}
    for run in runs:
        table = run.settings
        values = {key: _value(key, table) for key in keys}
        found.setdefault(str(values), (values, {}))[1].setdefault(run.config["seed"], run)

    def place(each: tuple[Json, dict[int, RecordedRun]]) -> tuple[int, float, list[Any]]:
        values, by_seed = each
        return -len(by_seed), -mean(map(_validated, by_seed.values())), _sizes(values.values())

    values, by_seed = min(found.values(), key=place)
    repeated = len(runs) - sum(len(own) for _, own in found.values())
    return Best(values, list(by_seed.values()), repeated, [tried for tried, _ in found.values()])


def _sizes(values: Iterable[object]) -> list[tuple[bool, float, str]]:
    """Make a key by which numbers come by size, then words."""
    return [
        (False, float(value), "") if isinstance(value, int | float) else (True, 0.0, str(value))
        for value in values
    ]


def _validated(run: RecordedRun) -> float:
    """Return how well a run did on the validation part: its accuracy or, without one, less loss."""
    accuracy, loss = (run.summary.get(key) for key in ("val_accuracy", "val_loss"))
    if accuracy is not None:
        return float(accuracy)
    if loss is not None:
        return -float(loss)
    raise RecordError(
        f"{run.folder}: its summary.json has no val_accuracy and no val_loss, one of which --best "
        "needs; run it again, with train.validate = true"
    )


def differing(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys whose values are not the same in all tables.

    >>> differing([{"lr": 0.1, "seed": 0}, {"lr": 0.1, "seed": 1, "tau1": 5}])
    ['seed', 'tau1']
    """
    keys = dict.fromkeys(key for table in tables for key in table)
    return [key for key in keys if len({str(table.get(key)) for table in tables}) > 1]
