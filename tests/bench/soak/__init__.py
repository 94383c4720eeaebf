"""The soak: a service under load for an hour, with queries coming and going; does it stay as it is?

    load process ── 20,000 rows/s ──> service ── pages, events ──> readers ──> pairs of each query, on disk
                                      ^     ^
       visitors: a query comes, changes,    sampler, every 10 s: memory, files, handles, threads, databases
       goes, every few seconds

Afterwards everything is compared: the pairs with DuckDB's join of what was acknowledged, and each figure's
last ten minutes with its first ten after the warm-up. ``python -m tests.bench.soak`` runs it.
"""
