"""Two spreadsheet files of docs/workload.md, joined as documented and compared with DuckDB."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from service.documents.workload import bind_workload, load_workload
from service.inputs.partitions import FileRows, FilesPartition
from service.inputs.reading.read import read_partition
from service.inputs.sources.listed.files import candidates, judged_files
from tests.bound_query import Tables, outputs_of
from tests.operators.harness import Runner

SECTION = "### Files of a spreadsheet"
PAYMENTS = """\
TIME;Order;Paid
01.11.2025 09:16:30;1.001;1.234,50
01.11.2025 10:20:00;1.002;89,90
01.11.2025 09:49:00;1.003;12.000,00
30.03.2025 03:00:00;900;0,01
26.10.2025 02:30:00;900;-1.000,00
"""
MORE_ORDERS = "30.03.2025 01:59:59;900;'s-Hertogenbosch;0,01\n26.10.2025 02:15:00;900;Åbo;-1.000,00\n"
READ = """
SELECT * REPLACE (
    timezone('Europe/Berlin', strptime("time", '%d.%m.%Y %H:%M:%S')) AT TIME ZONE 'UTC' AS "time"
)
FROM read_csv('{path}', delim = ';', decimal_separator = ',', thousands = '.', names = [{names}], skip = 1,
    header = false, types = {{{types}}})
"""
JOINED = """
SELECT o."order", o.shop, o.total, p.paid, p.time
FROM orders o JOIN payments p ON o."order" = p."order"
WHERE p.time >= o.time AND p.time < o.time + INTERVAL 1 HOUR ORDER BY ALL
"""


def blocks(section: str) -> list[str]:
    """Return the indented blocks of a section of docs/workload.md."""
    text = (Path(__file__).parents[3] / "docs" / "workload.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^{re.escape(section)}\n(.*?)^##", text, re.MULTILINE | re.DOTALL)
    return [
        textwrap.dedent(block).strip("\n") + "\n"
        for block in re.findall(r"(?:^    .*\n|^\n)+", found, re.MULTILINE)
        if block.strip()
    ]


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    """Workload of the section, with its files as a spreadsheet writes them."""
    orders, workload = blocks(SECTION)
    for name, text in (("orders", orders + MORE_ORDERS), ("payments", PAYMENTS)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "2025.csv").write_text(text, encoding="utf-8-sig", newline="\r\n")
    path = tmp_path / "workload.yaml"
    path.write_text(workload, encoding="utf-8")
    return path


def test_they_are_joined_as_documented(workload: Path) -> None:
    bound = bind_workload(load_workload(workload))
    (query,), streams = bound.queries.values(), bound.streams
    tables: dict[int, pa.Table] = {}
    for stream in streams:
        (file,) = judged_files(stream, list(candidates(stream.source.path)), settled=False)
        assert file.reason is None
        rows = FileRows(0, file.path, file.size, file.mtime_ns, 0, file.rows)
        tables[stream.id] = read_partition(stream, FilesPartition(stream.id, 0, None, file.rows, (rows,)))
    by_id = {stream.id: stream for stream in streams}
    runner = Runner(by_id, 2, slack_us=None)
    runner.step(tables, [build_plan([query], by_id, objective=Objective("mem-opt"))])
    assert not any(runner.late.values())
    with duckdb.connect() as duck:
        for stream in streams:
            names = [column.name for column in stream.columns]
            duck.register(f"given_{stream.name}", tables[stream.id].rename_columns([*names, "r"]))
            types = {
                c.name: "VARCHAR" if c.type in ("timestamp", "string") else c.type for c in stream.columns
            }
            text = READ.format(
                path=stream.source.path,
                names=", ".join(f"'{name}'" for name in names),
                types=", ".join(f"'{name}': '{kind}'" for name, kind in types.items()),
            )
            duck.execute(f"CREATE VIEW {stream.name} AS {text}")
        sides = [by_id[side.stream_id] for side in (query.a, query.b)]
        compared = Tables(duck, *(f"given_{s.name}" for s in sides), *(s.event_time for s in sides))
        pairs = [(a, b) for (_, a, b), count in runner.results.items() for _ in range(count)]
        expected = duck.sql(JOINED).fetchall()
        assert sorted(outputs_of(query, compared, pairs)) == expected
        assert [(row[0], str(row[3])) for row in expected] == [
            (900, "0.01"),
            (900, "-1000.00"),
            (1001, "1234.50"),
        ]


@pytest.mark.parametrize(
    ("without", "reason"),
    [
        ('delimiter: ";"', 'the header found is TIME;Order;Shop;Total; it can be read with delimiter: ";"'),
        ('decimal_point: ","', '; it can be read with decimal_point: ","'),
        ('thousands: "."', '; it can be read with thousands: "."'),
        (
            'timestamp_format: "%d.%m.%Y %H:%M:%S"',
            '; it can be read with timestamp_format: "%d.%m.%Y %H:%M:%S" or "%m.%d.%Y %H:%M:%S"',
        ),
    ],
)
def test_whoever_leaves_an_option_out_is_told_which_one_reads_the_file(
    workload: Path, without: str, reason: str
) -> None:
    text = workload.read_text(encoding="utf-8")
    assert without in text
    left = "\n".join(line for line in text.splitlines() if without not in line)
    if without.startswith("decimal_point"):  # both cannot be a point
        left = left.replace('thousands: "."', 'thousands: " "')
    workload.write_text(left, encoding="utf-8")
    orders = next(s for s in load_workload(workload).streams if s.name == "orders")
    (file,) = judged_files(orders, list(candidates(orders.source.path)), settled=False)
    assert file.verdict == "set-aside"
    assert file.reason is not None
    assert reason in file.reason
