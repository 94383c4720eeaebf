"""The one Spark job: source and packing, the stateful chain, and what Spark loads of them.

Doors: chain_processor, chain_state, commit_signal, job, job_options, packing, reader_tasks, source,
spark_entry_points, worker_check.
"""
