"""The site names every page, links lead somewhere, and what pages show is true."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.drawing.svg import render_svg
from tests.builders import a_stream
from tests.docs.pages import DOCS, ROOT, fenced, pages, prose, titled
from tests.sluice_run import Command, run

#: Pages that docs/.site/hooks.py makes.
GENERATED = {"rest.md", "cli.md", "deploy.md"}
SITE = ROOT / ".mkdocs.yml"
_FROM_ELSEWHERE = re.compile(
    r'<(?:script|img|iframe)[^>]*src="?https?:|<link[^>]*rel="?stylesheet[^>]*https?:'
)
_LINK = re.compile(r"\]\(([^)\s]+)\)")

COLUMNS = {
    "orders": {"id": "bigint", "total": "double"},
    "payments": {"order_id": "bigint", "amount": "double", "method": "string"},
    "quotes": {"sym": "string", "price": "double"},
    "trades": {"sym": "string", "qty": "bigint"},
}
STREAMS = {
    name: a_stream(number, columns=tuple(columns.items()), name=name)
    for number, (name, columns) in enumerate(COLUMNS.items(), start=1)
}
QUERIES = [(page, text) for page in ("cql.md", "coming-from.md") for text in fenced(page, "sql")]


def named(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from named(entry)


def test_the_site_names_every_page_once() -> None:
    nav = list(named(yaml.safe_load(SITE.read_text(encoding="utf-8"))["nav"]))
    assert sorted(nav) == sorted({str(page.relative_to(DOCS)) for page in pages()} | GENERATED)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(DOCS)))
def test_links_lead_somewhere(page: Path) -> None:
    links = {link.partition("#")[0] for link in _LINK.findall(prose(page)) if "://" not in link}
    lost = {link for link in links if link and not (page.parent / link).exists()}
    assert {link for link in lost if not (page.parent == DOCS and link in GENERATED)} == set()


def test_pages_show_queries() -> None:
    assert len(QUERIES) > 12


@pytest.mark.parametrize(("page", "text"), QUERIES)
def test_a_query_on_a_page_is_accepted(page: str, text: str) -> None:
    bind(text.removeprefix("-- Sluice\n"), STREAMS, name="q", query_id=1)


def test_the_picture_of_a_chain_is_that_of_the_queries_beside_it(rewrite_goldens: bool) -> None:
    queries = [
        bind(text, STREAMS, name=name, query_id=number)
        for number, (name, text) in enumerate(
            zip(("paid", "large"), fenced("concepts.md", "sql"), strict=True), start=1
        )
    ]
    plan = build_plan(queries, {stream.id: stream for stream in STREAMS.values()})
    picture = DOCS / "chain.svg"
    if rewrite_goldens:
        picture.write_text(render_svg(plan) + "\n", encoding="utf-8")
    assert picture.read_text(encoding="utf-8") == render_svg(plan) + "\n"


@pytest.fixture
def tutorial(tmp_path: Path) -> Path:
    """A directory with the files of the tutorial."""
    for name, text in titled("tutorial.md").items():
        if "." in name:
            (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_the_plan_of_the_tutorial_is_shown_as_it_is(sluice: Command, tutorial: Path) -> None:
    done = sluice("plan", tutorial / "workload.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(titled("tutorial.md")["plan"])


@pytest.mark.slow
@pytest.mark.spark
def test_the_results_of_the_tutorial_are_shown_as_they_are(tutorial: Path, tmp_path: Path) -> None:
    done = run(tutorial / "workload.yaml", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    lines = [line for line in (DOCS / "tutorial.md").read_text().splitlines() if line.startswith("| ")]
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    found = pd.read_parquet(tmp_path / "out" / "paid").sort_values("_event_time")
    assert found.columns.tolist() == head
    assert found.astype(str).values.tolist() == rows
    assert sorted(pd.read_parquet(tmp_path / "out" / "paid_soon")["id"]) == [1, 2, 4]


@pytest.mark.slow
def test_the_site_builds_strictly_and_asks_no_other_host(tmp_path: Path) -> None:
    mkdocs = Path(sys.executable).with_name("mkdocs")
    done = subprocess.run(
        [mkdocs, "build", "--strict", "-f", SITE, "-d", tmp_path / "site"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    built = {str(page.relative_to(tmp_path / "site")) for page in (tmp_path / "site").rglob("*.html")}
    assert {"index.html", "rest.html", "cli.html", "deploy.html", "bench/peers.html"} <= built
    rest = (tmp_path / "site" / "rest.html").read_text(encoding="utf-8")
    assert "POST /queries" in rest
    for page in (tmp_path / "site").rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert (
            re.findall(
                r'<(?:script|img|iframe)[^>]*src="?https?:|<link[^>]*rel="?stylesheet[^>]*https?:', text
            )
            == []
        )
