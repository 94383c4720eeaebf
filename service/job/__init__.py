"""The one Spark job: source and packing, the stateful chain, and what Spark loads of them.

Doors: commit_signal, job, job_options.
"""
