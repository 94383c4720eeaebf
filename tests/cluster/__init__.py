"""A cluster on this machine: hosts are network namespaces joined by a bridge.

    tests ── 127.0.0.1 ── switch ─┬─ postgres    ┐ each a process of its own that lives in a network, mount,
                                  ├─ s3          │ process and host name space of its own: a disk of its own,
                                  ├─ master      │ and everything else read-only
                                  ├─ worker1 ... ┘

`network` makes switch and hosts, `sluice_cluster` puts a cluster on them. All of it ends with the process
that made it, however that ends: no name space has a name that could stay behind.
"""
