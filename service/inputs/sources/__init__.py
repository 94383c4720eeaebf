"""Sources: listed files, posted events and generated rows.

Doors: distributions, files, generator, http_log.
"""
