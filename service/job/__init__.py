"""The one Spark job: source and packing, the stateful chain, and the processes in which Spark runs them.

Doors: commit_signal, job, job_options.
"""
