"""The report: constants, how well they predict, and what they say of more cores."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd

from tests.bench.plots import predicted_against_measured
from tests.bench.reports import fill_page, table, write_figures
from tests.bench.scaling.measured import FILE, Measured, bucket_deviation, shape_of, slope
from tests.bench.scaling.model import (
    Cluster,
    Model,
    Prediction,
    Shape,
    at_interval,
    fitted,
    left_out,
    predicted,
    with_driver,
)

CORES = (10, 30, 100, 300, 1000)
INTERVALS_S = (1.0, 5.0, 30.0)
#: Where limits are looked for: tenth parts of powers of ten, up to 10,000 cores.
MANY_CORES = tuple(round(10 ** (n / 10)) for n in range(3, 41))
LEAST_EFFICIENCY = 0.5
#: Buckets of a core, as the design has it.
BUCKETS_PER_CORE = 4
#: As settings are by default: rows of a piece of input, and of a batch.
DEFAULT_PIECE, DEFAULT_BATCH = 500_000, 1_000_000

_WHATS = {
    "pack": "reading and packing, CPU; each point from the other points",
    "chain": "the chain, CPU; each point from the other points",
    "cpu": "all that tasks take in Spark, CPU; each run from the other runs",
    "batch": "a batch in Spark by the clock; each run from the other runs",
}


def write_report(out: Path, measured: Measured) -> str:
    """Write the measurements and the tables made of them, and return the page."""
    out.mkdir(parents=True, exist_ok=True)
    write_figures(out / FILE, asdict(measured))
    own, seen, others = (pd.DataFrame(of) for of in (measured.own, measured.seen, measured.checked))
    checked = left_out(own, seen, others)
    model = driver_model(measured)
    points = {
        text.partition(";")[0]: 1e3 * checked[checked.what == what][["measured_s", "predicted_s"]].to_numpy()
        for what, text in _WHATS.items()
    }
    predicted_against_measured(out / "scaling-checked.png", points, "per batch")
    parts = {
        "machine": f"{measured.machine}. {measured.conditions}",
        "constants": _constants(model),
        "errors": _errors(checked),
        "driver": _driver(measured),
        "phases": _phases(pd.concat([seen, others]), checked),
        **_predictions(model, measured),
    }
    return fill_page(out / "scaling.md", parts)


def driver_model(measured: Measured) -> Model:
    """Fit everything, and take the driver's share of many buckets and pieces from where it was measured."""
    model = fitted(pd.DataFrame(measured.own), pd.DataFrame(measured.seen))
    return with_driver(model, bucket_s=slope(measured.reports), piece_s=slope(measured.partitions))


def _constants(model: Model) -> str:
    rows = [
        (group, _EACH.get(name, name), _microseconds(seconds))
        for part, group in _GROUPS.items()
        for name, seconds in model[part].items()
    ]
    return table(("", "for each", "µs"), rows, texts=2)


_GROUPS = {
    "pack": "reading and packing, CPU",
    "chain": "the chain, CPU",
    "spark": "tasks in Spark besides, CPU",
    "serial": "the driver, clock",
}
_EACH = {
    "piece": "piece of input (P)",
    "task": "task of the chain (S)",
    "bucket": "bucket (V)",
    "payload": "payload (P times V)",
    "payload's column": "payload and column carried along",
    "segment's column": "segment and column of its pairs",
    "block": "shuffle block (P times S)",
    "batch": "batch",
    "row": "row (R)",
    "value": "value carried along (R times columns)",
    "segment": "segment held",
    "row and segment": "row and segment of its bucket",
    "pair": "pair made",
    "value of a pair": "value of a pair",
    "byte": "byte shuffled",
}


def _microseconds(seconds: float) -> str:
    value = seconds * 1e6
    return "0" if value < 1e-6 else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _errors(checked: pd.DataFrame) -> str:
    rows = []
    for what, text in _WHATS.items():
        own = checked[checked.what == what]
        errors = own.predicted_s / own.measured_s - 1
        sizes = errors.abs()
        shown = (f"{sizes.median():.1%}", f"{sizes.quantile(0.9):.1%}", f"{errors.median():+.1%}")
        rows.append((text, len(errors), *shown))
    return table(("", "predictions", "median error", "9 of 10 within", "bias"), rows)


def _driver(measured: Measured) -> str:
    serial = [
        (name, f"{s.count:,}", f"{1e3 * s.cpu_s:.1f}", f"{s.bytes / 1e3:,.0f}")
        for name, rows in (("buckets reported", measured.reports), ("pieces planned", measured.partitions))
        for s in rows
    ]
    return table(("", "number", "ms", "KB"), serial)


def _phases(seen: pd.DataFrame, checked: pd.DataFrame) -> str:
    of = checked.pivot(index="name", columns="what", values=["measured_s", "predicted_s"])
    rows = []
    for s in seen.itertuples():
        seconds = [of.loc[s.name, (kind, what)] for what in ("batch", "cpu") for kind in _KINDS]
        rows.append(
            (
                *(s.run, f"{s.rows:,}", s.partitions),
                *(f"{1e3 * t:.0f}" for t in (*seconds, s.pack_s + s.chain_s, s.jvm_s - s.tasks_s)),
                *(f"{s.shuffled_bytes / 1e3:,.0f}", f"{s.hottest:.2f}"),
            )
        )
    header = (
        *("run", "R", "P", "clock", "predicted", "tasks, CPU", "predicted", "of it our own"),
        *("driver's JVM, CPU", "shuffled, KB", "hottest bucket / mean"),
    )
    return table(header, rows)


_KINDS = ("measured_s", "predicted_s")


def _predictions(model: Model, measured: Measured) -> dict[str, str]:
    shape, deviation = shape_of(measured), bucket_deviation(measured)
    cluster = Cluster(1, bucket_deviation=deviation, buckets_per_core=BUCKETS_PER_CORE)
    settings = {
        "four buckets and a piece of input for each core": (cluster, shape),
        "one bucket and a piece of input for each core": (replace(cluster, buckets_per_core=1), shape),
        "four buckets, pieces of 500,000 rows": (cluster, replace(shape, rows_per_piece=DEFAULT_PIECE)),
    }
    found = {
        (name, interval): [
            p for cores in CORES if (p := at_interval(model, replace(base, cores=cores), own, interval))
        ]
        for name, (base, own) in settings.items()
        for interval in INTERVALS_S
    }
    best = max(p.rows_per_s / p.cluster.cores for line in found.values() for p in line)
    rows = []
    for (name, interval), line in found.items():
        for p in line:
            per_core = p.rows_per_s / p.cluster.cores
            rates = f"{p.rows_per_s / 1e6:.1f}", f"{per_core / 1e3:.0f}", f"{per_core / best:.0%}"
            parts = (f"{part_s / p.batch_s:.0%}" for part_s in (p.serial_s, p.network_s))
            rows.append(
                (name, f"{p.cluster.cores:,}", f"{interval:g}", f"{p.load.rows:,.3g}", *rates, *parts)
            )
    header = (
        *("settings", "cores", "interval, s", "rows of a batch", "million rows/s"),
        *("per core, thousand rows/s", "efficiency", "driver", "network"),
    )
    assumed = [
        ("bytes shuffled for a row", f"{shape.bytes_per_row:.0f}"),
        ("bytes shuffled for a payload", f"{shape.bytes_per_payload:.0f}"),
        ("segments in a bucket", f"{shape.segments_per_bucket:.0f}"),
        ("cores to a machine", cluster.cores_per_node),
        ("Gbit/s", f"{cluster.network_bytes_per_s * 8e-9:.0f}"),
        ("standard deviation of a batch's buckets, from the hottest", f"{deviation:.1%}"),
    ]
    return {
        "assumed": table(("", ""), assumed),
        "more cores": table(header, rows),
        "limits": _limits(model, cluster, shape, best),
        "default batches": _default_batches(model, cluster, shape),
    }


def _limits(model: Model, cluster: Cluster, shape: Shape, best: float) -> str:
    """Say how many cores each interval keeps at least half as busy as the best, and what takes the rest."""
    rows = []
    for interval in INTERVALS_S:
        enough = [
            p
            for cores in MANY_CORES
            if (p := at_interval(model, replace(cluster, cores=cores), shape, interval))
            and p.rows_per_s / cores >= LEAST_EFFICIENCY * best
        ]
        if not enough:
            rows.append((f"{interval:g} s", f"fewer than {MANY_CORES[0]}", "", ""))
            continue
        last = enough[-1]
        parts = {"the driver": last.serial_s, "Spark's part of the tasks": last.spark_s}
        parts |= {"waiting for the last task": last.waiting_s, "the network": last.network_s}
        most = max(parts, key=lambda name: parts[name])
        shown = f"{last.cluster.cores:,}" + (" or more" if last.cluster.cores == MANY_CORES[-1] else "")
        rows.append((f"{interval:g} s", shown, most, f"{parts[most] / last.batch_s:.0%}"))
    return table(("a batch every", "cores", "takes most", "of the batch"), rows)


def _default_batches(model: Model, cluster: Cluster, shape: Shape) -> str:
    """Predict batches with the settings left as they are."""
    pieces = replace(shape, rows_per_piece=DEFAULT_PIECE)
    found: list[Prediction] = [
        predicted(model, replace(cluster, cores=cores, buckets_per_core=1), pieces, DEFAULT_BATCH)
        for cores in (2, *CORES)
    ]
    rows = [(f"{p.cluster.cores:,}", f"{p.batch_s:.2f}", f"{p.rows_per_s / 1e6:.2f}") for p in found]
    return table(("cores", "batch, s", "million rows/s"), rows)
