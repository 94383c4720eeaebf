"""Planning: changes of queries and of the objective become plan versions, previewed, priced and tried first.

Doors: changes, preview, versions.
"""
