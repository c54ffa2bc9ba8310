"""From answers to a model: who counts, who is left out and why, and the mean of the rest."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from coterie.flower import FlowerError
from coterie.flower.messages import COUNTS, NUM_EXAMPLES, Answer, Array, Arrays

Fault = Literal["late", "failed", "rejected"]
NOTHING: Arrays = {}
MOST_EXAMPLES = 2**53  # beyond this a weight is not exact


@dataclass(frozen=True)
class Dropped:
    """A node that does not count in a mean, and why."""

    node: str
    fault: Fault
    reason: str


@dataclass(frozen=True, eq=False)
class Heard:
    """What came of asking some nodes: answers to use, and nodes that were dropped."""

    used: Mapping[str, Answer]
    dropped: list[Dropped] = field(default_factory=list)


def sort_answers(
    asked: Mapping[int, str],
    answers: Sequence[Answer],
    like: Mapping[str, Arrays] | None,
    kept: Arrays = NOTHING,
) -> Heard:
    """Keep the answers that are whole; name the nodes, by id, whose are not or that gave none.

    With `like`, each node's answer must hold arrays of the shapes and kinds that it was sent; they
    are given back in the very types that it was sent. What it keeps must be like `kept`.
    """
    by_id = {answer.node_id: answer for answer in answers}
    used: dict[str, Answer] = {}
    dropped: list[Dropped] = []
    for node_id, name in asked.items():
        answer = by_id.get(node_id)
        if answer is None:
            dropped.append(Dropped(name, "late", "no answer within the time limit"))
        elif answer.error:
            dropped.append(Dropped(name, "failed", last_line(answer.error)))
        elif fault := wrong(answer, None if like is None else like[name], kept):
            dropped.append(Dropped(name, "rejected", fault))
        else:
            used[name] = answer if like is None else _as_sent(answer, like[name], kept)
    return Heard(used, dropped)


def wrong(answer: Answer, like: Arrays | None, kept: Arrays = NOTHING) -> str:
    """Say what is wrong with an answer; empty if it can be used.

    >>> sent = {"w": np.zeros(2, np.float32)}
    >>> wrong(Answer(1, {"w": np.array([1.0, np.nan])}, {"num-examples": 3}), sent)
    "'w' is not finite"
    >>> wrong(Answer(1, {"w": np.zeros(3)}, {"num-examples": 3}), sent)
    "'w' has the shape (3,), not (2,)"
    >>> wrong(Answer(1, {"w": np.zeros(2, bool)}, {"num-examples": 3}), sent)
    "'w' is of type bool, not float32"
    """
    weight = answer.metrics.get(NUM_EXAMPLES)
    if not isinstance(weight, int | float) or not 0 < weight <= MOST_EXAMPLES:
        return f"{NUM_EXAMPLES} must be a number above 0, got {weight!r}"
    if like is None:
        return ""
    if answer.arrays is None or answer.arrays.keys() != like.keys():
        there = sorted(set(answer.arrays or {}) ^ set(like))
        return f"its arrays are not those it was sent: {', '.join(map(repr, there[:3]))}"
    if kept and answer.kept.keys() != kept.keys():
        there = sorted(set(answer.kept) ^ set(kept))
        return f"what it keeps is not what is kept: {', '.join(map(repr, there[:3]))}"
    faults = (_unlike(key, answer.arrays[key], sent) for key, sent in like.items())
    others = (_unlike(key, answer.kept[key], sent) for key, sent in kept.items())
    said = (f"of what it keeps, {fault}" for fault in others if fault)
    return next((fault for fault in faults if fault), next(said, ""))


def _unlike(key: str, got: Array, sent: Array) -> str:
    """Say how an array is not like the one that was sent; empty if it is."""
    if got.shape != sent.shape:
        return f"{key!r} has the shape {got.shape}, not {sent.shape}"
    if got.dtype.kind != sent.dtype.kind or got.dtype.kind not in "fiub":
        return f"{key!r} is of type {got.dtype}, not {sent.dtype}"
    if not np.isfinite(got).all():
        return f"{key!r} is not finite"
    cast = _cast(got, sent)
    fits = np.isfinite(cast).all() if cast.dtype.kind == "f" else np.array_equal(cast, got)
    return "" if fits else f"{key!r} is beyond {sent.dtype}"


def _as_sent(answer: Answer, like: Arrays, kept: Arrays) -> Answer:
    """Return an answer whose arrays have the types that were sent; nothing is wrong with it."""
    arrays = answer.arrays or {}
    return replace(
        answer,
        arrays={key: _cast(arrays[key], sent) for key, sent in like.items()},
        kept={key: _cast(answer.kept[key], sent) for key, sent in kept.items()},
    )


def _cast(got: Array, sent: Array) -> Array:
    with np.errstate(over="ignore"):  # what is beyond the type is not finite, and told by that
        return got.astype(sent.dtype, copy=False)


def mean(models: Sequence[Arrays], weights: Sequence[float]) -> dict[str, np.ndarray]:
    """Weighted mean, summed in double precision; each array keeps its type, and is finite.

    >>> two = [{"w": np.float32([0, 4])}, {"w": np.float32([4, 8])}]
    >>> mean(two, [3, 1])["w"].tolist()
    [1.0, 5.0]
    """
    total = math.fsum(weights)
    found: dict[str, np.ndarray] = {}
    for key, first in models[0].items():
        summed = np.zeros(first.shape)
        with np.errstate(over="ignore"):
            for model, weight in zip(models, weights, strict=True):
                summed += np.asarray(model[key], dtype=np.float64) * (weight / total)
        whole = np.asarray(np.rint(summed) if first.dtype.kind in "iub" else summed)
        found[key] = _cast(whole, first)
        if not np.isfinite(whole).all() or not np.isfinite(found[key]).all():
            raise FlowerError(f"the mean of {key!r} is beyond {first.dtype}; lower the step size")
    return found


def num_examples(answers: Sequence[Answer]) -> list[float]:
    """Return the weights of answers."""
    return [float(answer.metrics[NUM_EXAMPLES]) for answer in answers]


def mean_metrics(answers: Sequence[Answer]) -> dict[str, float]:
    """Weighted means of the single numbers that every answer has, but for the weight.

    Counts of nodes, which an edge sends, are summed.

    >>> one, two = {"loss": 2.0, "nodes-late": 3}, {"loss": 4.0, "nodes-late": 0}
    >>> answers = [Answer(i, metrics={"num-examples": 1, **m}) for i, m in enumerate((one, two))]
    >>> mean_metrics(answers)
    {'loss': 3.0, 'nodes-late': 3.0}
    """
    if not answers:
        return {}
    weights = num_examples(answers)
    keys = [k for k in answers[0].metrics if k != NUM_EXAMPLES]
    found = {}
    for key in keys:
        values = [a.metrics.get(key) for a in answers]
        single = [v for v in values if isinstance(v, int | float) and math.isfinite(v)]
        if len(single) == len(answers):
            summed = key in COUNTS
            found[key] = float(sum(single) if summed else np.average(single, weights=weights))
    return found


def last_line(text: str) -> str:
    """Return the last line of an error that says something, which is where Python says what."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "its app failed"
