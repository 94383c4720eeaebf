"""Results of a query as rows, pages, or frames of Arrow, pandas and polars."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sluice_client.flows import Flow, Page, Supply, arrow_streams
from sluice_client.frames import required, table_of
from sluice_client.retry import Retry

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

T = TypeVar("T")


class Runner(Protocol):
    """Runs flows of the blocking client."""

    def run(self, flow: Flow[T]) -> T:
        """Return the value of a flow."""

    def supply(self, flow: Supply[T]) -> Iterator[T]:
        """Yield the values of a flow."""


class AsyncRunner(Protocol):
    """Runs flows of the client for asyncio."""

    async def run(self, flow: Flow[T]) -> T:
        """Return the value of a flow."""

    def supply(self, flow: Supply[T]) -> AsyncIterator[T]:
        """Yield the values of a flow."""


class _Reading:
    """Attributes shared by ``Results`` and ``AsyncResults``.

    Args:
        name: The query.
        after: Cursor after which results begin.
        retry: Rules by which requests are sent again.
        pages: Starts reading pages.
    """

    def __init__(self, name: str, after: str | None, retry: Retry, pages: Callable[[], Supply[Page]]) -> None:
        self._name, self._after, self._retry, self._start = name, after, retry, pages

    def _arrow(self) -> Flow[list[bytes]]:
        return arrow_streams(self._name, self._after, self._retry)


class Results(_Reading):
    """Results of a query; each iteration starts again and yields all rows as dictionaries."""

    def __init__(
        self,
        runner: Runner,
        name: str,
        after: str | None,
        retry: Retry,
        pages: Callable[[], Supply[Page]],
    ) -> None:
        super().__init__(name, after, retry, pages)
        self._runner = runner

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for page in self.pages():
            yield from page.rows

    def pages(self) -> Iterator[Page]:
        """Yield pages of rows; each page has a cursor after which reading can continue."""
        return self._runner.supply(self._start())

    def to_arrow(self) -> pa.Table:
        """Return the results so far as an Arrow table."""
        required("pyarrow", "arrow")
        return table_of(self._runner.run(self._arrow()))

    def to_pandas(self) -> pd.DataFrame:
        """Return the results so far as a pandas frame."""
        required("pandas", "pandas")
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_polars(self) -> pl.DataFrame:
        """Return the results so far as a polars frame."""
        polars = required("polars", "polars")
        frame: pl.DataFrame = polars.from_arrow(self.to_arrow())
        return frame


class AsyncResults(_Reading):
    """Results of a query; asynchronous iteration yields a dictionary for each row."""

    def __init__(
        self,
        runner: AsyncRunner,
        name: str,
        after: str | None,
        retry: Retry,
        pages: Callable[[], Supply[Page]],
    ) -> None:
        super().__init__(name, after, retry, pages)
        self._runner = runner

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        async for page in self.pages():
            for row in page.rows:
                yield row

    def pages(self) -> AsyncIterator[Page]:
        """Yield pages of rows; each page has a cursor after which reading can continue."""
        return self._runner.supply(self._start())

    async def to_arrow(self) -> pa.Table:
        """Return the results so far as an Arrow table."""
        required("pyarrow", "arrow")
        return table_of(await self._runner.run(self._arrow()))

    async def to_pandas(self) -> pd.DataFrame:
        """Return the results so far as a pandas frame."""
        required("pandas", "pandas")
        frame: pd.DataFrame = (await self.to_arrow()).to_pandas()
        return frame

    async def to_polars(self) -> pl.DataFrame:
        """Return the results so far as a polars frame."""
        polars = required("polars", "polars")
        frame: pl.DataFrame = polars.from_arrow(await self.to_arrow())
        return frame
