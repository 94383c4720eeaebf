"""Plans as text, graphs and documents.

Doors: plan_report, render.
"""
