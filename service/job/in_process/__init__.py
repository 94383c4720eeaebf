"""The tasks of the job run in this process, without Spark: calibration and tests measure them so.

Doors: in_process_job.
"""
