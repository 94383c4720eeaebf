"""Explaining: plans, costs and changes as documents, graphs and text.

Doors: cost_document, explain, given_statistics, plan_report, preview, preview_document, primitive_document,
render.
"""
