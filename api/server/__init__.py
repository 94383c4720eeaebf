"""Parts of the HTTP server below the routes: connection limits, documentation pages, traces.

Doors: connections, docs_pages, loop, traces.
"""
