"""Planning: changes of queries and objective are previewed, priced, tried, made plan versions.

Doors: changes, objective, plan_record, preview, versions.
"""
