"""Values as JSON documents, and plan versions as differences from the previous version.

Doors: codec, plan_differences.
"""
