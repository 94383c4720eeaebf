"""Ownership: one engine at a time works on a catalog, and only its newest job makes results visible.

The lease of the catalog ensures both. The epoch of the lease is the only fencing counter:

    lease taken: epoch 1 ── start of the job: 2 ── start after a failure: 3 ── next engine takes the lease: 4

Every write of the engine to the catalog needs the token of the lease, and the commit of a batch also needs
the epoch. Two more mechanisms cover cases in which the lease does not help:

- The lock of the data directory (``flock``) excludes an engine with another catalog on the same directory.
  The lock file names the engine's JVM, so that the next engine can end a JVM that a dead engine has left.
- The fence file ``checkpoint/epoch`` contains the epoch of the lease for workers, which do not access the
  catalog. They read the file before they write or remove a segment.

Doors: catalog_lease, engine_lock.
"""
