"""A whole service without Spark, on a virtual clock, from one seed: clients, batches, crashes, retention.

clients ── Workspace ── catalog, event log            the service's own code
              SimulatedSpark                          offset log, tasks, state, commit log, replays
                 └── source reader, PACK, chain processor, committer      the job's own code
Death                                                 before any durable write, in whatever runs
check                                                 nested loops over what clients were acknowledged
"""
