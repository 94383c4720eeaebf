"""Planning: changes of queries and of the objective become plan versions, previewed, priced and tried first.

Doors: changes, objective, plan_record, preview, versions.
"""
