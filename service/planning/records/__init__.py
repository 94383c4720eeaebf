"""What the catalog stores about plans: the objective in force, and a record of each version.

Doors: objective, plan_record.
"""
