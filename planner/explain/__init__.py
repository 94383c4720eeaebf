"""Explaining: plans, costs and changes as documents, graphs and text.

Doors: cost_document, explain, given_statistics, plan_report, plan_structure, preview, preview_document,
primitive_document, render.
"""
