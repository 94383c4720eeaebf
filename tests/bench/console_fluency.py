"""How fluent the console's picture of the plan is with a thousand queries, in a browser on this machine.

    python -m tests.bench.console_fluency

A service with two streams and 1,000 queries (200 pairs of windows, 20 filters) gets rows. Then the picture is
opened, grouped and one by one. Times are the browser's own: from the start of the navigation to the frame
with the picture, and from new numbers to the frame that has them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser

from tests.api.running_service import WAIT_S, RunningService
from tests.bench.loaded import loaded_service
from tests.bench.reports import table
from tests.browser import launched

QUERIES = 1000
FIRST_PAINT_MS = 1000
UPDATE_MS = 200

_COLUMNS = {"ts": "timestamp", "k": "bigint", "v": "double"}
#: Notes when the picture has its first row of queries, after the frame that paints it.
_WATCH = """
new MutationObserver((_, observer) => {
  if (!document.querySelector(".query-row")) return;
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => { window.painted = performance.now(); }));
}).observe(document, { childList: true, subtree: true });
"""
#: Tells every listener of new numbers, all of them different, and waits for the frame that has them.
_UPDATE = """async () => {
  const { live } = await import("/console/live.js");
  const times = [];
  for (let round = 0; round < 10; round += 1) {
    for (const slice of live.statistics.slices) slice.rows += 1 + round;
    for (const query of live.statistics.queries) {
      live.rates.set(`query:${query.query_id}`, [round * 17 + query.query_id]);
    }
    const from = performance.now();
    live.dispatchEvent(new Event("look"));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    times.push(performance.now() - from);
  }
  return times;
}"""
_LIGHT = """async () => {
  const rows = [...document.querySelectorAll(".query-row")];
  const times = [];
  for (const row of rows.slice(0, 10)) {
    const from = performance.now();
    row.dispatchEvent(new PointerEvent("pointerenter"));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    times.push(performance.now() - from);
    row.dispatchEvent(new PointerEvent("pointerleave"));
  }
  return times;
}"""


def fill(service: RunningService) -> None:
    """Register streams, add the queries in one request, and give them a batch of rows."""
    service.register(_COLUMNS, "A", "B")
    changes = [{"add": {"name": f"q{n}", "cql": _cql(n)}} for n in range(QUERIES)]
    service.ok("POST", f"/changes?wait={2 * WAIT_S}", 200, json={"changes": changes}, timeout=5 * WAIT_S)
    for name in ("A", "B"):
        rows = [
            {"ts": f"2026-01-01T12:{n // 60:02}:{n % 60:02}Z", "k": n % 50, "v": n / 10} for n in range(3000)
        ]
        service.ok("POST", f"/streams/{name}/events", 202, json=rows)


def _cql(n: int) -> str:
    a, b = 10 * (1 + n % 200), 10 * (1 + (n * 7) % 200)
    return (
        f"SELECT A.v, B.v AS w FROM A [RANGE {a} SECONDS], B [RANGE {b} SECONDS] "
        f"WHERE A.k = B.k AND A.v > {n % 20}"
    )


def measure(service: RunningService, browser: Browser) -> Mapping[str, float]:
    """Return times in ms: first paint, and medians of updating and lighting, grouped and one by one."""
    # The page's own policy would not let this script look at it.
    page = browser.new_page(base_url=service.root, viewport={"width": 1280, "height": 900}, bypass_csp=True)
    page.set_default_timeout(WAIT_S * 1000)
    page.add_init_script(_WATCH)
    paints = []
    for _ in range(5):
        page.goto("about:blank")
        page.goto(f"{service.root}/console/#/plan")
        page.wait_for_function("window.painted !== undefined")
        paints.append(float(page.evaluate("window.painted")))
    found = {"first paint": median(paints), "update, in groups": median(page.evaluate(_UPDATE))}
    page.get_by_label("Queries", exact=True).select_option("none")
    page.wait_for_function(f"document.querySelectorAll('.query-row').length === {QUERIES}")
    found["update, one by one"] = median(page.evaluate(_UPDATE))
    found["light, one by one"] = median(page.evaluate(_LIGHT))
    page.close()
    return found


def main() -> None:
    """Print the times, and fail where one is too long."""
    with (
        tempfile.TemporaryDirectory() as directory,
        launched() as browser,
        loaded_service(Path(directory)) as loaded,
    ):
        fill(loaded.service)
        found = measure(loaded.service, browser)
    wanted = {"first paint": FIRST_PAINT_MS, "update, in groups": UPDATE_MS, "update, one by one": UPDATE_MS}
    print(table(("", "ms", "at most"), [(name, ms, wanted.get(name, "")) for name, ms in found.items()]))
    if any(found[name] > most for name, most in wanted.items()):
        sys.exit("slower than it should be")


if __name__ == "__main__":
    main()
