"""What scripts/verdict.py makes of tables at medium scale that have a part of their runs."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "verdict.py"
spec = spec_from_file_location("verdict", SCRIPT)
assert spec
assert spec.loader
verdict = module_from_spec(spec)
sys.modules["verdict"] = verdict
spec.loader.exec_module(verdict)

CLOCKS = ("by the paper's clock", "honest")
IC, AVG, HIER = "fedavg-ic (reference)", "fedavg", "hierfavg"


def evidence(n: int, word: str = "holds") -> object:
    lines = ["## Accuracy", "`coterie reproduce accuracy --scale medium`: 4 of 90 runs"]
    for clock in CLOCKS:
        lines += [
            f"### Accuracy (%) when FedAvg has taken its steps, {clock}",
            "| data | n | FedAvg-IC - FedAvg | FedAvg-IC - HierFAVG | verdict |",
            "| --- | --- | --- | --- | --- |",
            f"| mnist-f | {n} | -1.0 | +2.0 | differs: behind by 1.0 |",
            f"### Relations the paper states, {clock}",
            "| relation | work | n | by seed | mean | 95% interval | p | verdict |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
            f"| {IC} > {AVG} | mnist-f Dtt 2nn | {n} | | +7.0 | | | {word} |",
            f"| {IC} > {HIER} | mnist-f Dtt 2nn | {n} | | +8.0 | | | {word} |",
            f"| {IC} > {AVG} | mnist-o Dtt 2nn | 5 | | +9.0 | | | holds |",
            f"| {IC} > {HIER} | mnist-o Dtt 2nn | 5 | | +9.0 | | | holds |",
        ]
    small = verdict.read(verdict.SMALL.read_text())
    return verdict.Evidence(
        {}, small, {}, verdict.parts_of("\n\n".join(lines).replace("|\n\n|", "|\n|"))
    )


@pytest.mark.parametrize(
    ("n", "scale", "mixed", "said"),
    [
        (1, "small", "-4.0 and +17.9", "partly"),
        (2, "medium", "-1.0 and +2.0", "partly"),
        (3, "medium", "+7.0 and +8.0", "holds"),
    ],
)
def test_a_claim_rests_on_medium_from_two_seeds_and_on_pairs_from_three(
    n: int, scale: str, mixed: str, said: str
) -> None:
    claim = verdict._by_time(evidence(n), "mnist-f", "MNIST-F")
    assert claim.rests.startswith(f"{scale}: 2NN")
    assert ("no paired test" in claim.rests) == (n < 3)
    assert (claim.mixed, claim.verdict) == (mixed, said)


def test_a_paired_test_that_tells_nothing_leaves_the_claim_open() -> None:
    claim = verdict._by_time(evidence(4, "not told apart"), "mnist-f", "MNIST-F")
    assert claim.verdict == "open"


def test_what_medium_has_no_row_of_rests_on_small() -> None:
    claim = verdict._by_time(evidence(5), "femnist", "FEMNIST")
    assert claim.rests.startswith("small")
    assert claim.verdict == "open"
    (first, *_) = verdict._spreads(evidence(5))
    assert first.rests.startswith("small")
