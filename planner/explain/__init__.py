"""Explaining: plans, costs and changes as documents, graphs and text.

Doors: cost_document, explain, plan_report, preview, preview_document, primitive_document, render.
"""
