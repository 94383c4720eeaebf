"""Posted events: the durable log of events, and the promises that clients post with them.

Doors: event_reader, http_log, promises.
"""
