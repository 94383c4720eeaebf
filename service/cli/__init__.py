"""The command line, a client of the REST API, and bounded runs.

Doors: cli, options.
"""
