"""The one Spark job: source and packing, the stateful chain, and the Python processes that run them.

Doors: commit_signal, job, job_options.
"""
