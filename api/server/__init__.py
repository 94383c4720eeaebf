"""Parts of the HTTP server below the routes: limits of connections, pages of the documentation, traces.

Doors: connections, docs_pages, loop, traces.
"""
