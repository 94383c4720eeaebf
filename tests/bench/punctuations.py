"""The punctuations benchmark: the experiments of PJoin and PWJoin, on this engine.

    python -m tests.bench.punctuations                      ten seeds; writes docs/bench/punctuations.md
    python -m tests.bench.punctuations --seeds 2 --only pwjoin-8 --out build/bench

``punctuation_trials`` says how the streams are made and which joins are compared.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from unittest.mock import patch

import numpy as np
import typer

from operators.bucket.closing import BatchClosings
from operators.pack import pack
from operators.pack.pack import Packer
from tests.bench.punctuation_trials import Outcome, Source, Trial, run, simulated
from tests.bench.reports import read_figures, rounded, table, write_page

#: Batches of many rows of each stream, as if rows were always waiting: the papers' joins are CPU-limited.
_LARGE_BATCHES: Mapping[str, int] = {"seconds": 5_000, "batch_ms": 500_000}
_LARGE_PJOIN_BATCHES: Mapping[str, int] = {"seconds": 500, "batch_ms": 50_000}
#: Batches by their rows of each stream.
_PJOIN_SIZES = {"25,000": _LARGE_PJOIN_BATCHES, "5,000": {"seconds": 130, "batch_ms": 10_000}}


class Finding(NamedTuple):
    """A figure of an experiment.

    Attributes:
        what: Text.
        found: As measured.
        simulated: What the papers' join gives for the same streams; None where that is not simulated.
        wanted: What the simulation with other seeds, or the paper, gave.
        error: Standard error of ``found`` as a mean over seeds; None where it is not such a mean.
    """

    what: str
    found: float
    simulated: float | None
    wanted: str
    error: float | None = None


Measure = Callable[[Outcome], float]


def mean(trial: Trial, seeds: int, measure: Measure) -> float:
    """Return the average of a measure over seeds."""
    return float(np.mean([measure(run(trial, seed)) for seed in range(seeds)]))


def of_mean(values: Sequence[float]) -> float | None:
    """Return the standard error of an average; None for one value."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None


def state(what: str, trial: Trial, seeds: int, wanted: str, sides: Sequence[int] = (0, 1)) -> Finding:
    """Return the live rows of some sides, relative to those without punctuations."""
    columns = list(sides)
    live = [float(np.array(run(trial, seed).live)[:, columns].sum(axis=1).mean()) for seed in range(seeds)]
    papers, whole = (
        float(np.mean([simulated(each, seed)[:, columns].sum(axis=1).mean() for seed in range(seeds)]))
        for each in (trial, trial.plain)
    )
    error = of_mean([rows / whole for rows in live])
    return Finding(what, float(np.mean(live)) / whole, papers / whole, wanted, error)


def figure(what: str, values: Sequence[float], wanted: str) -> Finding:
    """Return an average over seeds."""
    return Finding(what, float(np.mean(values)), None, wanted, of_mean(values))


def in_turn(trials: Sequence[Trial], seeds: int) -> list[list[Outcome]]:
    """Run trials in turn, so that other work on the machine slows all of them; return outcomes per trial."""
    for each in trials:
        run(each, seeds)  # what is compiled and loaded first is not counted
    for seed in range(seeds):
        for each in trials if seed % 2 else reversed(trials):
            run(each, seed)
    return [[run(each, seed) for seed in range(seeds)] for each in trials]


def speed(what: str, trial: Trial, seeds: int, wanted: str, plain: Trial | None = None) -> Finding:
    """Return pairs per CPU second, relative to those of another trial: by default, without punctuations."""
    ratios = []
    for own, other in zip(*in_turn([trial, plain or trial.plain], seeds), strict=True):
        assert own.pairs == other.pairs, "punctuations change results"
        ratios.append(other.steady_s / own.steady_s)
    return figure(what, ratios, wanted)


def _announced(part: slice, per_s: float = 1) -> Measure:
    return lambda outcome: sum(outcome.announced[part]) * per_s


def pwjoin_8(seeds: int) -> list[Finding]:
    """State relative to WJoin's."""
    wanted = {1: "0.77", 5: "0.57", 15: "0.27"}
    source = Source(100)
    return [
        state(f"windows of {w} s", Trial(source, source, (w, w)), seeds, text) for w, text in wanted.items()
    ]


def pwjoin_9(seeds: int) -> list[Finding]:
    """Output per CPU second relative to WJoin's."""
    wanted = {5: "a little below 1", 15: "above 1"}
    sizes = {"50,000": _LARGE_BATCHES, "1,000": {"seconds": 200, "batch_ms": 10_000}}
    source = Source(100)
    return [
        speed(f"windows of {w} s, batches of {rows} rows", Trial(source, source, (w, w), **size), seeds, text)
        for w, text in wanted.items()
        for rows, size in sizes.items()
    ]


def pwjoin_10(seeds: int) -> list[Finding]:
    """Output per CPU second relative to WJoin's, all punctuations irrelevant."""
    a, b = Source(30, strange=True), Source(30, shuffled=True, strange=True)
    trial = Trial(a, b, (1, 1), **_LARGE_BATCHES)
    skipped = replace(trial, a=a._replace(on="other"), b=b._replace(on="other"))
    wanted = "at least 0.97"
    return [
        speed("values that no row has; WJoin skips the punctuations", trial, seeds, wanted, skipped),
        speed(
            "on another column; WJoin skips the punctuations",
            skipped,
            seeds,
            wanted,
            replace(skipped, on=("other",)),
        ),
        speed("on another column; WJoin's streams have no punctuations", skipped, seeds, wanted),
    ]


def pwjoin_11(seeds: int) -> list[Finding]:
    """Result punctuations in 60 s."""
    trial = Trial(Source(30), Source(30, shuffled=True), (1, 1), announces=True)
    pjoin = replace(trial, windows_s=(None, None))
    count = _announced(slice(None))
    return [
        Finding("PWJoin", mean(trial, seeds, count), None, "395"),
        Finding("PJoin", mean(pjoin, seeds, count), None, "1 to 3"),
    ]


def pwjoin_12(seeds: int) -> list[Finding]:
    """Result punctuations per second in the second half; stream a has no punctuations."""
    trial = Trial(Source(None), Source(30), (5, 5), announces=True)
    pjoin = replace(trial, windows_s=(None, None))
    rate = _announced(slice(len(trial.ends_us) // 2, None), 2 / trial.seconds)
    return [
        Finding("PWJoin", mean(trial, seeds, rate), None, "3.3"),
        Finding("PJoin", mean(pjoin, seeds, rate), None, "0"),
    ]


def _pjoin(a: float, b: float, **facts: Any) -> Trial:
    return Trial(Source(a), Source(b), (None, None), **({"seconds": 30, "gap_ms": 2} | facts))


def pjoin_5(seeds: int) -> list[Finding]:
    """State relative to XJoin's."""
    wanted = {10: "0.011", 20: "0.014", 30: "0.016", 40: "0.022"}
    return [state(f"{s} rows per punctuation", _pjoin(s, s), seeds, text) for s, text in wanted.items()]


def pjoin_7(seeds: int) -> list[Finding]:
    """Output per CPU second of the last third relative to that of the first one."""
    found = []
    for rows, size in _PJOIN_SIZES.items():
        trial = _pjoin(30, 30, **size)
        names = {"PJoin": "about 1", "XJoin": "below 1"}
        for (name, wanted), outcomes in zip(names.items(), in_turn([trial, trial.plain], seeds), strict=True):
            steadiness = [last / first for first, _, last in map(_thirds, outcomes)]
            found.append(figure(f"{name}, batches of {rows} rows", steadiness, wanted))
    return found


def _thirds(outcome: Outcome) -> tuple[float, float, float]:
    """Return thousands of pairs per CPU second in each third of a run, without its first batch."""
    third = (len(outcome.pairs) - 1) // 3
    first, middle, last = (
        sum(outcome.pairs[at : at + third]) / sum(outcome.cpu_s[at : at + third]) / 1000
        for at in (1, 1 + third, 1 + 2 * third)
    )
    return first, middle, last


def pjoin_8(seeds: int) -> list[Finding]:
    """Stored rows, dead ones included, and thousands of pairs per CPU second of PJoin-n."""
    numbers = (1, 10, 100, 400, 800)
    trials = [_pjoin(10, 10, purge_after=n, batch_ms=100) for n in numbers]
    found = []
    for n, outcomes in zip(numbers, in_turn(trials, seeds), strict=True):
        held = [float(np.mean(outcome.held)) for outcome in outcomes]
        found.append(figure(f"PJoin-{n}, rows", held, "grows with n"))
        found.append(figure(f"PJoin-{n}, output", [each.output for each in outcomes], "peaks between"))
    return found


def pjoin_10(seeds: int) -> list[Finding]:
    """State of each side relative to XJoin's, 10 rows per punctuation of a."""
    wanted = {20: "0.51", 30: "0.68", 40: "0.76"}
    return [
        state(
            f"{side}, {s} rows per punctuation of b", _pjoin(10, s), seeds, text if side == "a" else "0", [n]
        )
        for s, text in wanted.items()
        for n, side in enumerate("ab")
    ]


def pjoin_11(seeds: int) -> list[Finding]:
    """Thousands of pairs per CPU second in each third of a run of PJoin-1, 10 rows per punctuation of a."""
    sizes = (20, 30, 40)
    trials = [_pjoin(10, s, purge_after=1, **_LARGE_PJOIN_BATCHES) for s in sizes]
    return [
        figure(f"{s} rows per punctuation of b, {part} third", rates, "grows with b's rows")
        for s, outcomes in zip(sizes, in_turn(trials, seeds), strict=True)
        for part, rates in zip(
            ("first", "second", "last"), zip(*map(_thirds, outcomes), strict=True), strict=True
        )
    ]


def pjoin_12(seeds: int) -> list[Finding]:
    """Output per CPU second relative to XJoin's, 10 and 20 rows per punctuation."""
    policies = {"PJoin-1": 1, "PJoin-10000": 10_000, "PJoin, by cost": None}
    return [
        speed(
            f"{name}, batches of {rows} rows",
            _pjoin(10, 20, purge_after=n, **size),
            seeds,
            "below 1" if n == 1 else "about 1",
        )
        for name, n in policies.items()
        for rows, size in _PJOIN_SIZES.items()
    ]


def pjoin_14(seeds: int) -> list[Finding]:
    """Result punctuations per second."""
    trial = _pjoin(40, 40, announces=True)
    half = len(trial.ends_us) // 2
    return [
        Finding("all", mean(trial, seeds, _announced(slice(None), 1 / trial.seconds)), None, "12.5"),
        Finding("first half", mean(trial, seeds, _announced(slice(half), 2 / trial.seconds)), None, "12.5"),
    ]


def no_contract(seeds: int) -> list[Finding]:
    """Part of the CPU time that is spent on punctuations where no stream has a contract."""
    spent = 0.0

    def timed(called: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            nonlocal spent
            began = time.process_time()
            try:
                return called(*args, **named)
            finally:
                spent += time.process_time() - began

        return call

    trial = Trial(Source(100), Source(100), (5, 5), promises=False)
    shares = []
    with (
        patch.object(BatchClosings, "of", timed(BatchClosings.of)),
        patch.object(Packer, "_closings", timed(Packer._closings)),
        patch.object(pack, "parted", timed(pack.parted)),
    ):
        for seed in range(seeds):
            spent = 0.0
            whole_s = sum(run(trial, seed).cpu_s)
            shares.append(spent / whole_s)
    return [figure("batches of 100 rows", shares, "at most 0.01")]


EXPERIMENTS: Mapping[str, Callable[[int], list[Finding]]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        *(pwjoin_8, pwjoin_11, pwjoin_12, pjoin_5, pjoin_10, pjoin_14),
        *(pwjoin_9, pwjoin_10, pjoin_7, pjoin_8, pjoin_11, pjoin_12, no_contract),
    )
}


def main(
    seeds: Annotated[int, typer.Option(help="Runs of each trial.")] = 10,
    only: Annotated[list[str] | None, typer.Option(help="Experiments; all by default.")] = None,
    out: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("docs/bench"),
) -> None:
    """Run experiments and write what they give."""
    found = read_figures(out / "punctuations.json")
    for name in only or EXPERIMENTS:
        findings = EXPERIMENTS[name](seeds)
        found[name] = {"seeds": seeds, "findings": [rounded(each) for each in findings]}
        print(name, json.dumps(found[name]), flush=True)
        write_page(out, "punctuations", report(found), found)


def report(found: Mapping[str, Any]) -> str:
    """Return the page."""
    rows = [
        (
            *(name, EXPERIMENTS[name].__doc__, what, found[name]["seeds"], f"{value:.4g}"),
            *("" if error is None else f"± {error:.2g}" for error in errors[:1] or (None,)),
            *("" if own is None else f"{own:.3g}", wanted),
        )
        for name in EXPERIMENTS
        if name in found
        for what, value, own, wanted, *errors in found[name]["findings"]
    ]
    header = (
        *("experiment", "figure", "of", "seeds", "measured", "standard error"),
        *("papers' join, same streams", "wanted"),
    )
    return _PAGE.format(table=table(header, rows, 3))


_PAGE = """# Punctuations: the experiments of PJoin and PWJoin

`make bench-punctuations` runs the experiments of both papers on this engine, in one bucket and without Spark.
Each figure is a mean over seeds, with its standard error. `tests/bench/punctuation_trials.py` says how
the streams are made. [Punctuations](../punctuations.md#figures) says what the figures mean.

{table}

**Rows of a unique side.** Each row of a `unique` stream closes its own key, so the key of a row that is held
is stored twice: in the row and in the closing. Three designs were tried on the demo of auctions (12,000
auctions, two buckets), in the middle of the run:

1. Closings derived from the stored rows, with a closing written when its row leaves. A row leaves when the
   other stream closes its key, when a filter stops it or when its window ends, and each of these places would
   have to hand over a key.
2. The same, with one comparison of the segments before and after each batch that finds the keys of all rows
   that have left. This was not built, because it saves too little: of 7,213 closings of auctions that are
   remembered, 478 (7%) have a row that is held, which makes 3% of the state. The others outlive their rows.
   If nothing closes the keys of auctions, it is 39% of the closings, and at most 9% of the state.
3. Closings without what nobody asks once their batch is over: their positions, and the ends of intervals of a
   single key. A closing of auctions takes 16.7 bytes instead of 18.6, and the whole state 289 kB instead of
   310 kB. This is the design that is built.
"""


if __name__ == "__main__":
    typer.run(main)
