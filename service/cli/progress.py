"""Display of the progress of commands that take long, on a terminal only.

    1,234,567 of 8,000,000 rows ━━━━━━━╸               15%  310,000 rows/s  0:00:22
    ⠹ measuring what work costs 0:00:41

A run shows how many rows its committed batches have read, out of all input rows. Other commands show their
current work and the time since it began. Progress is written to stderr and disappears when the command ends.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from catalog.errors import Unavailable

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.progress import Progress, TaskID

    from service.workspace.bounded_run import RunProgress

#: Seconds between two updates; a batch takes about one second.
_LOOK_S = 0.5


def watch_run(look: Callable[[], RunProgress]) -> AbstractContextManager[object]:
    """Show the progress of a run while the block lasts, if stderr is a terminal.

    Args:
        look: Returns the current progress; called from another thread.
    """
    return _bar(look) if sys.stderr.isatty() else nullcontext()


def show_work(doing: str) -> AbstractContextManager[object]:
    """Show a command's work and its duration while the block lasts, if stderr is a terminal.

    Lines that the block prints to the same terminal appear above it.
    """
    return _spinner(doing) if sys.stderr.isatty() else nullcontext()


@contextmanager
def _spinner(doing: str) -> Iterator[None]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    # Output to a file or a pipe must not go through the display, so it is not redirected.
    above = sys.stdout.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=above) as progress:
        progress.add_task(doing, total=None)
        yield


@contextmanager
def _bar(look: Callable[[], RunProgress]) -> Iterator[None]:
    # The imports take 0.1 s, and a run without a terminal does not need them.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(show_speed=True),
        TimeElapsedColumn(),
    )
    ended = threading.Event()
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as progress:
        task = progress.add_task("starting", total=None)
        thread = threading.Thread(target=_follow, args=(look, progress, task, ended), name="progress")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _follow(
    look: Callable[[], RunProgress], progress: Progress, task: TaskID, ended: threading.Event
) -> None:
    while not ended.wait(_LOOK_S):
        try:
            found = look()
        except Unavailable:
            continue  # ignored here: if the catalog stays unreachable, the run itself reports it
        progress.update(task, description=described(found), completed=found.rows, total=found.total_rows)


def described(found: RunProgress) -> str:
    """Return the progress of a run as text."""
    if not found.batches:
        return "starting"
    of_all = "" if found.total_rows is None else f" of {found.total_rows:,}"
    return f"{found.rows:,}{of_all} rows"
