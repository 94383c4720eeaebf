"""Client of Sluice: streams, queries and results of a running service.

``Client`` blocks, ``AsyncClient`` is for asyncio. Both clients have the same methods. The requests and
answers of these methods are described once, in `operations` and `flows`. Models are in
``sluice_client.models``, errors in ``sluice_client.errors``, lists of changes in ``sluice_client.changes``.
"""

from sluice_client import changes, errors, models
from sluice_client.client import AsyncClient, Client
from sluice_client.results import AsyncResults, Results
from sluice_client.retry import Retry

__all__ = [
    "AsyncClient",
    "AsyncResults",
    "Client",
    "Results",
    "Retry",
    "changes",
    "errors",
    "models",
]
