"""Records about plans in the catalog: the current objective, and one record for each plan version.

Doors: objective, plan_record.
"""
