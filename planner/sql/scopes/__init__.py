"""Names in scope: the columns to which the names of a query or of a step of a join refer.

Doors: scope, step_scope.
"""
