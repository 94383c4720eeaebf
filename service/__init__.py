"""The service: settings, inputs, the Spark job, results, sinks, planning and the command line.

Doors: errors, faults, log.
"""
