"""Planning: changes of queries and of the objective are previewed, priced, tried and made plan versions.

Doors: changes, objective, plan_record, preview, versions.
"""
