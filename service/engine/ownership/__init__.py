"""Ownership: one engine at a time works on a catalog, and only its newest job makes results visible.

Both rest on the lease of the catalog. Its epoch is the only fencing counter:

    lease taken: epoch 1 ── start of the job: 2 ── start after a failure: 3 ── next engine takes the lease: 4

Every write of the engine to the catalog needs the token of the lease, and a batch needs its epoch. Two more
mechanisms remain for what the lease cannot do:

- The lock of the data directory (``flock``) excludes an engine with another catalog on the same directory.
  Its file names the JVM that a dead engine may have left, so that the next engine can end this JVM.
- The fence file ``checkpoint/epoch`` contains the epoch of the lease for workers, which have no catalog: they
  read it before they write or remove a segment.

Doors: catalog_lease, engine_lock.
"""
