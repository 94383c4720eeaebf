"""The soak: a service under load for an hour, with queries coming and going; does it stay as it is?

    feeders ── 20,000 rows/s ──> service ── pages, events ──> readers ──> pairs of each query
                                 ^     ^
       visitors: a query comes,        sampler, every 10 s: memory, files, handles, threads, databases
       changes, goes

Afterwards everything is compared: the pairs with DuckDB's join of what was acknowledged, and each figure's
last ten minutes with its first ten after the warm-up. ``python -m tests.bench.soak`` runs it.
"""
