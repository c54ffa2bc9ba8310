"""Write docs/results/verdict.md, the paper claim by claim, from tables that were printed.

python scripts/verdict.py                                  from the tables in docs/results/tables
python scripts/verdict.py runs/efficiency/reproduction.md  after taking over these tables, which
                                                           'coterie reproduce efficiency' wrote
python scripts/verdict.py --check                          say whether it is as it would be written

Every figure and every verdict of a table is looked up by its title, its row and its column, and no
claim without one has a figure. What the full scale has no runs of rests on the medium one, where
that has all rows of it with two seeds, and else on the small one.
"""

import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve()
RESULTS = HERE.parents[1] / "docs" / "results"
PROSE = HERE.with_suffix(".md")
PAGE = RESULTS / "verdict.md"
FULL, SMALL, COSTS, MEDIUM = (
    RESULTS / "tables" / f"reproduction-{name}.md"
    for name in ("efficiency", "small", "costs", "medium")
)
ESTIMATE = RESULTS / "tables" / "estimate.txt"
TAKEN_OVER = (
    "# All tables of efficiency\n\nAt full scale, on MNIST-O, as `coterie reproduce efficiency "
    "--no-run` writes them; what to see in them: [the paper, checked](../reproduction.md).\n\n"
)
WORDS = ("holds", "partly", "fails", "open", "not run")
HEAD = ("claim", "as the paper mixed it", "honestly", "rests on", "verdict", "shown in")
IC, HIER, AVG, BY_HOPS, BY_DATA = (
    *("fedavg-ic (reference)", "hierfavg", "fedavg"),
    *("fedavg-c (reference)", "fedavg-i (reference)"),
)
MIX, HONEST, STEPS = "by the paper's clock", "honest", "after as many steps"
NOT_RUN = "not run"
WIDEST = 120  # letters of a line
LEAST = 2  # seeds that medium must have to count
TESTED = 3  # seeds of a paired test
CELLS = {
    f"{kind} {model}": (kind, model) for kind in ("Dtt", "Dhh") for model in ("sr", "2nn", "cnn")
}
TALES = {"sr": "SR", "2nn": "2NN", "cnn": "CNN"}


@dataclass(frozen=True)
class Printed:
    """A printed table."""

    columns: list[str]
    rows: list[list[str]]

    def row(self, **where: str) -> list[str]:
        """Return the one row with these cells."""
        keys = [(self.columns.index(key), value) for key, value in where.items()]
        found = [row for row in self.rows if all(row[at] == value for at, value in keys)]
        if len(found) != 1:
            raise SystemExit(f"{len(found)} rows of {self.columns} have {where}")
        return found[0]

    def cells(self, column: str, /, **where: str) -> list[str]:
        """Return the cells of the one row in all columns of a name."""
        row = self.row(**where)
        return [cell for name, cell in zip(self.columns, row, strict=True) if name == column]

    def cell(self, column: str, /, **where: str) -> str:
        """Return the first of them."""
        return self.cells(column, **where)[0]

    def count(self, where: dict[str, str]) -> int:
        """Return the seeds of the one row with these cells; of none, none."""
        keys = [(self.columns.index(key), value) for key, value in where.items()]
        found = [row for row in self.rows if all(row[at] == value for at, value in keys)]
        return first_number(found[0][self.columns.index("n")]) if len(found) == 1 else 0


def first_number(cell: str) -> int:
    """Return the seeds that a cell tells of.

    >>> first_number("3"), first_number("2/3"), first_number("")
    (3, 2, 0)
    """
    found = re.match(r"\d+", cell)
    return int(found[0]) if found else 0


def read(text: str) -> dict[str, Printed]:
    """Read the tables of a Markdown page by their titles; of equal titles the first counts.

    >>> read("### T\\n\\n| a | b |\\n| --- | --- |\\n| 1 | 2 |\\n")["T"].cell("b", a="1")
    '2'
    """
    found: dict[str, Printed] = {}
    title = ""
    lines: list[list[str]] = []
    for line in [*text.splitlines(), "#"]:
        if line.startswith("|"):
            lines.append([cell.strip() for cell in line.strip().strip("|").split("|")])
            continue
        if lines:
            found.setdefault(title, Printed(lines[0], lines[2:]))
            lines = []
        if line.startswith("#"):
            title = line.lstrip("# ").strip()
    return found


@dataclass
class Claim:
    """What the paper says, what came out, and what that rests on."""

    claim: str
    mixed: str
    honest: str
    rests: str
    words: Sequence[str]  # verdicts of tables
    shown: str
    said: str = ""  # a verdict that no table has

    def cells(self) -> tuple[str, ...]:
        """Write it as a row of the page."""
        bold = f"**{self.verdict}**"
        return self.claim, self.mixed, self.honest, self.rests, bold, self.shown

    @property
    def verdict(self) -> str:
        """Sum up the verdicts of the tables in a word."""
        return self.said or overall(self.words)


def overall(words: Iterable[str]) -> str:
    """Sum up verdicts: holds, fails, partly, open (not told apart) or not run.

    >>> overall(["reproduced", "holds"]), overall(["differs: by 3", "does not hold"])
    ('holds', 'fails')
    >>> overall(["holds", "differs"]), overall(["holds", "not told apart"])
    ('partly', 'partly')
    >>> overall(["not told apart", "not run"]), overall(["not run"])
    ('open', 'not run')
    """
    known = [word for word in words if word not in (NOT_RUN, "")]
    good = [word in ("reproduced", "holds") for word in known]
    bad = [word.startswith(("differs", "does not hold")) for word in known]
    if not known:
        return NOT_RUN
    if any(good):
        return "holds" if all(good) else "partly"
    return "fails" if all(bad) else "partly" if any(bad) else "open"


Tables = dict[str, Printed]


@dataclass(frozen=True)
class Part:
    """An experiment at medium scale: its runs, those that are there, and their tables."""

    there: str
    runs: str
    tables: Tables


def parts_of(text: str) -> dict[str, Part]:
    """Read the experiments of a page at medium scale by their names.

    >>> one = "## Speeds\\n\\n`coterie reproduce speeds --scale medium`: 18 of 40 runs\\n"
    >>> parts_of(one)
    {'speeds': Part(there='18', runs='40', tables={})}
    """
    found = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        said = re.search(r"`coterie reproduce (\S+) --scale medium`: (\d+) of (\d+) runs", part)
        if said:
            found[said[1]] = Part(said[2], said[3], read(part))
    return found


@dataclass(frozen=True)
class Source:
    """The tables below the full scale that a claim rests on, and in words."""

    tables: Tables
    rests: str
    shown: str
    seeds: int = 0  # that all of it has at medium scale


@dataclass
class Evidence:
    """The tables, and the claims that are judged by them."""

    full: Tables
    small: Tables
    costs: Tables  # at full scale, too
    medium: dict[str, Part]

    def below_full(self, experiment: str, title: str, wanted: Sequence[dict[str, str]]) -> Source:
        """Choose medium where all wanted rows of a table are there with two seeds, else small."""
        part = self.medium.get(experiment)
        table = part.tables.get(title) if part else None
        seeds = min(table.count(where) for where in wanted) if table else 0
        if part is None or seeds < LEAST:
            return Source(self.small, TENTH, SMALL_TABLES)
        return Source(
            part.tables, f"medium: 2NN, all of the data, {seeds} seeds", MEDIUM_TABLES, seeds
        )

    def tested(
        self, source: Source, title: str, relation: str, work: str
    ) -> tuple[str, str] | None:
        """Return mean and verdict of a paired test at medium scale on three seeds, if there is."""
        table = source.tables.get(title) if source.seeds >= TESTED else None
        rows = [row for row in table.rows if row[0] == relation] if table else []
        rows = [row for row in rows if len(rows) == 1 or row[1].startswith(f"{work} ")]
        if table is None or len(rows) != 1 or first_number(rows[0][2]) < TESTED:
            return None
        mean, word = (rows[0][table.columns.index(name)] for name in ("mean", "verdict"))
        return mean, word

    def relation(self, clock: str, relation: str, cells: Sequence[str]) -> tuple[str, list[str]]:
        """Return the mean differences of a relation in some cells, and the verdicts."""
        table = self.full[f"Relations the paper states, {clock}"]
        told, words = [], []
        for work in cells:
            where = {"relation": relation, "work": work}
            n, mean, word = (table.cell(name, **where) for name in ("n", "mean", "verdict"))
            if n != "1":  # one seed is shown, and tells nothing
                words.append(word)
            if n != "0":
                told.append(f"{TALES[CELLS[work][1]]} {mean}{' (one seed)' if n == '1' else ''}")
        return ", ".join(told) or NOT_RUN, words

    def pair(self, relation: str, cells: Sequence[str]) -> tuple[str, str, list[str]]:
        """Return the same by both clocks."""
        (mixed, some), (honest, more) = (self.relation(c, relation, cells) for c in (MIX, HONEST))
        return mixed, honest, some + more

    def seeds(self, cells: Sequence[str], relation: str) -> str:
        """Say how many seeds of what a relation rests on."""
        table = self.full[f"Relations the paper states, {STEPS}"]
        counts = {TALES[CELLS[w][1]]: table.cell("n", relation=relation, work=w) for w in cells}
        told = ", ".join(f"{name} {n}" for name, n in counts.items() if n != "0")
        return f"full, MNIST-O; seeds: {told}" if told else "-"


DTT, DHH = ("Dtt sr", "Dtt 2nn", "Dtt cnn"), ("Dhh sr", "Dhh 2nn", "Dhh cnn")
TENTH = "small: 2NN, a tenth of the data, 2 seeds"
TABLES, SMALL_TABLES, COSTS_TABLES, MEDIUM_TABLES = (
    f"[tables](tables/reproduction-{name}.md)"
    for name in ("efficiency", "small", "costs", "medium")
)
BY_TIME = "Accuracy (%) when FedAvg has taken its steps"
UNTESTED = "; no paired test, which needs more seeds"


def accuracy(e: Evidence) -> list[Claim]:
    """Judge what the paper says of accuracy."""
    claims = []
    for text, data, of in (
        ("up to 22.2 points above HierFAVG (abstract; MNIST-F, CNN)", "mnist-f", HIER),
        ("up to 17.4 points above FedAvg (CelebA, CNN)", "celeba", AVG),
    ):
        source = e.below_full("accuracy", f"{BY_TIME}, {HONEST}", [{"data": data}])
        ahead = source.tables["How far FedAvg-IC is ahead, in points"]
        cells = [ahead.row(clock=clock, data=data, of=of) for clock in (MIX, HONEST)]
        at = ahead.columns.index("authors' groups")
        mixed, honest = (NOT_RUN if row[at] == "-" else row[at] for row in cells)
        rests = source.rests if mixed != NOT_RUN else "-"
        words = [row[at + 1] for row in cells]
        claims.append(Claim(text, mixed, honest, rests, words, source.shown))
    curves = "[curves](efficiency-dtt-2nn.png), " + TABLES
    for other, name in ((AVG, "FedAvg"), (HIER, "HierFAVG")):
        mixed, honest, words = e.pair(f"{IC} > {other}", DTT)
        rests = e.seeds(DTT, f"{IC} > {other}")
        text = f"above {name} by time on MNIST-O, Dtt (points)"
        claims.append(Claim(text, mixed, honest, rests, words, curves))
    claims += [_by_time(e, "mnist-f", "MNIST-F"), _by_time(e, "femnist", "FEMNIST")]
    for upper, lower, text in (
        (IC, AVG, "above FedAvg by epochs, Dtt (points)"),
        (BY_HOPS, BY_DATA, "FedAvg-C, too, above FedAvg-I by epochs, Dtt (points)"),
    ):
        by_step, words = e.relation(STEPS, f"{upper} > {lower}", DTT)
        rests = e.seeds(DTT, f"{upper} > {lower}")
        claims.append(Claim(text, by_step, "the same", rests, words, curves))
    for lower, upper, text in (
        (BY_DATA, IC, "no less accurate than FedAvg-I by epochs, Dtt (points)"),
        (HIER, BY_DATA, "FedAvg-I no less than HierFAVG by epochs, Dtt (points)"),
        (AVG, HIER, "HierFAVG no less than FedAvg by epochs, Dtt (points)"),
    ):
        by_step, words = e.relation(STEPS, f"{upper} >= {lower}", DTT)
        rests = e.seeds(DTT, f"{upper} >= {lower}")
        claims.append(Claim(text, by_step, "the same", rests, words, TABLES))
    for name, tale in ((IC, "FedAvg-IC"), (HIER, "HierFAVG")):
        mixed, honest, words = e.pair(f"{name} = {AVG}", DHH)
        rests = e.seeds(DHH, f"{name} = {AVG}")
        text = f"on Dhh {tale} and FedAvg are level by time (points)"
        claims.append(
            Claim(text, mixed, honest, rests, words, "[curves](efficiency-dhh-2nn.png), " + TABLES)
        )
        by_step, words = e.relation(STEPS, f"{name} = {AVG}", DHH)
        text = f"on Dhh {tale} and FedAvg are level by epochs (points)"
        claims.append(Claim(text, by_step, "the same", rests, words, TABLES))
    return claims


def _by_time(e: Evidence, data: str, name: str) -> Claim:
    """Judge whether FedAvg-IC is above both by time on a dataset; by pairs, if there are enough."""
    source = e.below_full("accuracy", f"{BY_TIME}, {HONEST}", [{"data": data}])
    told: list[str] = []
    words: list[str] = []
    rests = source.rests
    for clock in (MIX, HONEST):
        title = f"Relations the paper states, {clock}"
        pairs = [e.tested(source, title, f"{IC} > {other}", data) for other in (AVG, HIER)]
        means = [pair[0] for pair in pairs if pair]
        if len(means) < len(pairs):
            table = source.tables[f"{BY_TIME}, {clock}"]
            row = table.row(data=data)
            at = table.columns.index("FedAvg-IC - FedAvg")
            means = row[at : at + 2]
            words += ["holds" if float(mean) > 0 else "does not hold" for mean in means]
            rests = source.rests + UNTESTED
        else:
            words += [pair[1] for pair in pairs if pair]
        told.append(" and ".join(means))
    said = ""
    if not source.seeds and data == "femnist":
        rests, said = f"{source.rests}; it learns next to nothing in 60 steps", "open"
    text = f"above FedAvg and HierFAVG by time on {name}, Dtt (points)"
    return Claim(text, told[0], told[1], rests, words, source.shown, said)


def efficiency(e: Evidence) -> list[Claim]:
    """Judge the efficiency table, cell by cell."""
    table = e.full["Efficiency: seconds to FedAvg's final accuracy"]
    picture = "[picture](efficiency-speed-ups.png), " + TABLES
    there = {row[0] for row in table.rows}
    claims = []
    given = e.full["FedAvg (%) at the paper's seconds, by the paper's clock"]
    told = [f"{_told(row[0])} {row[4].split(' ±')[0]} ({row[3]})" for row in given.rows]
    words = [row[-1] for row in given.rows]
    text = "FedAvg ends with the accuracies of the table (%; in brackets: printed)"
    seeds = ", ".join(f"{_told(row[0])} {row[1]}" for row in given.rows)
    claims.append(
        Claim(text, ", ".join(told), "-", f"full, MNIST-O; seeds: {seeds}", words, TABLES)
    )
    printed = {"Dhh cnn": "543 (1.10x)"}
    for work in CELLS:
        where = {"work": work, "algorithm": IC}
        if work not in there:
            text = f"{_told(work)}: {_ratio(printed[work])} as fast as FedAvg"
            claims.append(Claim(text, NOT_RUN, NOT_RUN, "-", [NOT_RUN], picture))
            continue
        text = f"{_told(work)}: {_ratio(table.cell('paper', **where))} as fast as FedAvg"
        if work == "Dtt sr":
            text += " (abstract: 12% of the time)"
        cells = [_ratio(table.cell(name, **where)) for name in ("as mixed", "honest")]
        words = table.cells("verdict", **where)[:2]
        n = table.cell("n", **where)
        said = "open" if n == "1" else ""  # one seed tells nothing
        rests = f"full, MNIST-O; seeds: {n}"
        claims.append(Claim(text, cells[0], cells[1], rests, words, picture, said))
    works = [work for work in CELLS if work in there]
    hier = {w: table.row(work=w, algorithm=HIER) for w in works}
    at = [table.columns.index(name) for name in ("as mixed", "honest")]
    told = [", ".join(f"{_told(w)} {_ratio(row[i])}" for w, row in hier.items()) for i in at]
    words = [row[i + 1] for row in hier.values() for i in at]
    text = "HierFAVG: SR on Dtt 1.7x, on Dhh 3.4x; 2NN on Dhh 1.3x; 2NN and CNN on Dtt never"
    seeds = ", ".join(f"{_told(w)} {row[1]}" for w, row in hier.items())
    rests = f"full, MNIST-O; seeds: {seeds}"
    claims.append(Claim(text, told[0], told[1], rests, words, TABLES))
    best = []
    for name in ("as mixed", "honest"):
        took = [table.cell(name, work="Dtt sr", algorithm=a) for a in (HIER, IC)]
        best.append(float(took[0].split()[0]) / float(took[1].split()[0]))
    words = ["reproduced" if abs(ratio / (29 / 6) - 1) <= 0.25 else "differs" for ratio in best]
    text = "SR on Dtt: 4.8x as fast as HierFAVG"
    rests = f"full, MNIST-O; seeds: {table.cell('n', work='Dtt sr', algorithm=IC)}"
    claims.append(Claim(text, f"{best[0]:.2f}x", f"{best[1]:.2f}x", rests, words, TABLES))
    return claims


def _told(work: str) -> str:
    kind, model = CELLS[work]
    return f"{TALES[model]} on {kind}"


def _ratio(cell: str) -> str:
    """Return the speed-up of a cell of seconds.

    >>> _ratio("39.6 (1.45x)"), _ratio("108 (3/5) (1.07x)"), _ratio("never"), _ratio("-")
    ('1.45x', '1.07x', 'never', 'never')
    """
    found = re.search(r"\(([\d.]+x)\)", cell)
    return found[1] if found else NOT_RUN if cell == NOT_RUN else "never"


def appendix(e: Evidence) -> list[Claim]:
    """Judge what the appendix says, but for the costs of groups at small scale only."""
    costs = e.costs["What groups cost"]
    ic = [row for row in costs.rows if row[0] == IC]
    usual = costs.row(grouping=IC, alpha_comm="1")
    edge = costs.row(grouping=HIER)
    text = "FedAvg-IC's groups have less Delta and fewer hops than the edges (Delta; hops)"
    told = f"{usual[4]} against {edge[4]}; {usual[5]} against {edge[5]}"
    at, front = costs.columns.index("less than edges"), costs.columns.index("on the front")
    some = f"full: CNN, MNIST-F, {usual[2]} seeds"
    claims = [
        Claim(text, told, "the same", some, [row[at] for row in ic], COSTS_TABLES),
        Claim(
            "they are a Pareto front, and the edges are not on it",
            f"{sum(row[front] == 'reproduced' for row in ic)} of {len(ic)}; edges are on it",
            "the same",
            some,
            [row[front] for row in (*ic, edge)],
            COSTS_TABLES,
        ),
    ]
    combined = e.small["Seconds of a mean with and without combined aggregation"]
    drops = [combined.row(algorithm=IC, mean=mean) for mean in ("group", "global")]
    claims.append(
        Claim(
            "combining cuts the time of transfers, of global means above all",
            "-",
            ", ".join(f"{row[2]} {row[5]}" for row in drops),
            "small: the CNN's transfers at their full size, 2 seeds",
            [row[-1] for row in drops],
            SMALL_TABLES,
        )
    )
    return [*claims, _steps(e), *_speeds(e), *_spreads(e), *_skews(e)]


def _steps(e: Evidence) -> Claim:
    """Judge what 25 steps cost; by pairs, if there are enough."""
    title = "Accuracy (%) after as many epochs, by learning steps"
    three = (AVG, HIER, IC)
    source = e.below_full("learning-steps", title, [{"algorithm": name} for name in three])
    rows = [source.tables[title].row(algorithm=name) for name in three]
    told = ", ".join(f"{row[0].split()[0]} {row[4].lstrip('+')}" for row in rows)
    relations = [*(f"loss of {name} > 0" for name in three), f"loss of {AVG} > {IC}"]
    paired = "Whom 25 learning steps cost accuracy, and whom the most"
    pairs = [e.tested(source, paired, relation, "") for relation in relations]
    words = [pair[1] for pair in pairs if pair]
    rests = source.rests
    if len(words) < len(pairs):
        words, rests = [row[-1] for row in rows], source.rests + UNTESTED
    text = "25 steps instead of 5 cost everybody accuracy, FedAvg-IC least (points lost)"
    return Claim(text, told, "the same", rests, words, source.shown)


def _speeds(e: Evidence) -> list[Claim]:
    """Judge what links, processors and topologies do; topologies by pairs, if there are enough."""
    title = f"Seconds to FedAvg's final accuracy by links, processors and topology, {HONEST}"
    every = [
        {"topology": topology, "MByte/s": link, "GFLOPS": gflops}
        for topology in ("fat-tree", "jellyfish")
        for link in ("10", "100")
        for gflops in ("5", "250")
    ]
    source = e.below_full("speeds", title, every)
    claims = []
    for text, key in (
        ("250 GFLOPS are faster than 5", "250 GFLOPS are faster than 5"),
        ("100 MByte/s are faster than 10", "100 MByte/s are faster than 10"),
        ("the jellyfish is faster than the fat tree", "the jellyfish is faster"),
    ):
        table = source.tables["What the paper says of links, processors and topologies"]
        words, rests = table.row(claim=key)[1:], source.rests
        told = [_yes(word) for word in words]
        if "jelly" in text:
            relation = f"{IC}: fat tree > jellyfish"
            paired = "Seconds that the jellyfish saves over the fat tree"
            pairs = [e.tested(source, paired, f"{relation}, {c}", "") for c in (MIX, HONEST)]
            known = [pair for pair in pairs if pair]
            if len(known) == len(pairs):
                told = [f"by {mean.lstrip('+')} s" for mean, _ in known]
                words = [word for _, word in known]
            else:
                rests = source.rests + UNTESTED
        claims.append(Claim(text, told[0], told[1], rests, words, source.shown))
    return claims


def _spreads(e: Evidence) -> list[Claim]:
    """Judge what unequal nodes do."""
    title = "Seconds to FedAvg's final accuracy, by how unequal nodes are"
    names = ("normal, SD 1", "normal, SD 3", "normal, SD 5", "exponential")
    every = [{"distribution": name} for name in names]
    source = e.below_full("distributions", f"{title}, {HONEST}", every)
    noise = source.tables["Noise by how unequal nodes are"]
    curves = noise.columns[1:-1]
    calm, *rows = (
        [float(cell) for cell in noise.row(distribution=name)[1:-1]]
        for name in (names[0], *names[2:])
    )
    more = [[a > b for a, b in zip(row, calm, strict=True)] for row in rows]
    each = [", ".join(c for c, yes in zip(curves, row, strict=True) if yes) for row in more]
    told = "; ".join(f"{name}: {who or 'none'}" for name, who in zip(names[2:], each, strict=True))
    text = "all curves are noisier with SD 5 and with the exponential (which are)"
    words = ["holds" if yes else "does not hold" for row in more for yes in row]
    first = "FedAvg-IC converges first however unequal the nodes"
    return [
        Claim(text, told, "the same", source.rests, words, source.shown),
        _of_clocks(source, first, title, "distribution"),
    ]


def _skews(e: Evidence) -> list[Claim]:
    """Judge six kinds of skew on every dataset that has them all."""
    title = f"{BY_TIME}, by class diversity"
    kinds = ("Dtt", "Dtq", "Dth", "Dqq", "Dqh", "Dhh")
    text = "six diversities on {}: who is behind FedAvg-IC, and nobody ahead"
    claims: list[Claim] = []
    left = ["CelebA"]
    for data, name in (("femnist", "FEMNIST"), ("mnist-f", "MNIST-F"), ("mnist-o", "MNIST-O")):
        every = [{"data": data, "diversity": kind} for kind in kinds]
        source = e.below_full("diversities", f"{title}, {HONEST}", every)
        if source.seeds or data == "mnist-o":
            claims.insert(0, _of_clocks(source, text.format(name), title, "diversity", data))
        else:
            left.insert(0, name)
    others = ", ".join(left[:-1]) + " and " * bool(left[:-1]) + left[-1]
    return [*claims, Claim(f"the same on {others}", NOT_RUN, NOT_RUN, "-", [NOT_RUN], "-")]


def _of_clocks(source: Source, claim: str, title: str, key: str, data: str = "") -> Claim:
    """Judge a claim by the last column of a table by each clock."""
    told, words = [], []
    for clock in (MIX, HONEST):
        table = source.tables[f"{title}, {clock}"]
        rows = [row for row in table.rows if not data or row[table.columns.index("data")] == data]
        good = [row for row in rows if row[-1] == "reproduced"]
        names = ", ".join(row[table.columns.index(key)] for row in good)
        told.append(f"{len(good)} of {len(rows)}{f': {names}' if good else ''}")
        words += [row[-1] for row in rows]
    return Claim(claim, told[0], told[1], source.rests, words, source.shown)


def _yes(word: str) -> str:
    return "yes" if word == "reproduced" else NOT_RUN if word == NOT_RUN else "no"


def theory(e: Evidence) -> list[Claim]:
    """Add what other groups could reach to what is proved."""
    reach = e.full["What other groups could reach, honest"]
    several = [row for row in reach.rows if row[0] in DTT and row[1] != "1"]
    told = [f"{_told(row[0])} {row[3]} and {row[5]}" for row in several]
    seeds = ", ".join(f"{TALES[CELLS[row[0]][1]]} {row[1]}" for row in several)
    return [
        *PROVED,
        Claim(
            "what groups can save of time is d_group (remark 2)",
            "-",
            f"with our planner's groups, and were their means free: {', '.join(told)}",
            f"full, MNIST-O; seeds: {seeds}",
            (),
            TABLES,
            "holds",
        ),
    ]


PROVED = [
    Claim(
        "the convergence bound (lemma and theorem)",
        "broken for tau1, tau2 > 1; right for one of them 1",
        "a bound that holds is there",
        "proof, a counterexample, tests",
        (),
        "[the theory](../explanation/theory.md)",
        "partly",
    ),
    Claim(
        "Delta dominates it (remark 1)",
        "not by the printed bound",
        "at tau1 = 1, the paper's choice, by the one that holds",
        "proof",
        (),
        "[the theory](../explanation/theory.md)",
        "partly",
    ),
]


def left() -> str:
    """Write the core-hours of what is left, as `--estimate` printed them."""
    _, _, *lines = ESTIMATE.read_text().splitlines()
    row = re.compile(r"\s*([\w-]+)\s+([\d,]+)\s+([\d,]+)\s+([\d.,]+)\s*$")
    found = [found.groups() for line in lines if (found := row.match(line))]
    said = " ".join(" ".join(lines[len(found) :]).split())
    table = _table(("experiment", "runs", "counted", "core-hours"), found)
    return f"{table}\n\n{textwrap.fill(said, WIDEST)}"


def left_at_medium(e: Evidence) -> str:
    """Write how many runs of what are there at medium scale."""
    rows = [(name, part.runs, part.there) for name, part in e.medium.items()]
    return _table(("experiment", "runs", "complete"), rows)


def _count(claims: Sequence[Claim], word: str) -> tuple[str, ...]:
    """Say how many claims have a verdict, and how many of these rest on smaller runs alone."""
    found = [claim for claim in claims if claim.verdict == word]
    of_scale = (sum(c.rests.startswith(scale) for c in found) for scale in ("medium", "small"))
    return word, str(len(found)), *map(str, of_scale)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines)


def page() -> str:
    """Write the page: the prose beside this file, filled with tables and counts."""
    full, small, costs = (read(path.read_text()) for path in (FULL, SMALL, COSTS))
    e = Evidence(full, small, costs, parts_of(MEDIUM.read_text()))
    free = e.full["If group means took no time, by the paper's clock otherwise"]
    near = [row[-1] for row in free.rows if row[3] != "-"]
    makers = (accuracy, efficiency, appendix, theory)
    parts = {make.__name__: make(e) for make in makers}
    every = [claim for claims in parts.values() for claim in claims]
    return PROSE.read_text().format(
        total=_table(
            ("verdict", "claims", "of them at medium scale", "at small scale alone"),
            [_count(every, word) for word in WORDS],
        ),
        free=f"{near.count('reproduced')} of {len(near)}",
        medium=left_at_medium(e),
        left=left(),
        **{name: _table(HEAD, [each.cells() for each in claims]) for name, claims in parts.items()},
    )


def main(words: list[str]) -> None:
    """Write the page, or check it."""
    if words == ["--check"]:
        if PAGE.read_text() != page():
            raise SystemExit(f"{PAGE.name} is not what scripts/verdict.py writes; run it")
        return
    for word in words:
        text = Path(word).read_text().replace("(speed-ups.png)", "(../efficiency-speed-ups.png)")
        FULL.write_text(TAKEN_OVER + text.rstrip() + "\n")
    PAGE.write_text(page())


if __name__ == "__main__":
    main(sys.argv[1:])
