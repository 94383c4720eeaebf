"""The page about semantics tells types, casts and functions as the planner has them."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import DOCS
from tests.docs.reference import cast_table, function_table, type_table

PAGE = DOCS / "semantics.md"


@pytest.mark.parametrize(
    ("name", "table"), [("types", type_table), ("casts", cast_table), ("functions", function_table)]
)
def test_a_table_is_what_the_planner_accepts(name: str, table: object, rewrite_goldens: bool) -> None:
    assert callable(table)
    begin, end = f"<!-- table: {name} -->\n", "\n<!-- end -->"
    page = PAGE.read_text(encoding="utf-8")
    block = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    now = block.sub(lambda _: f"{begin}{table()}{end}", page)
    if rewrite_goldens:
        PAGE.write_text(now, encoding="utf-8")
    assert begin in page
    assert PAGE.read_text(encoding="utf-8") == now, "if the new table is right, run make golden"
