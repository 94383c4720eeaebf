"""Planning: previews, prices and tries changes of queries and objective, and makes plan versions.

Doors: changes, preview, versions.
"""
