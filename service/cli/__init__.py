"""The command line: what works on files (``run``, ``plan``, ``calibrate``), and a client of the REST API.

Doors: cli.
"""
