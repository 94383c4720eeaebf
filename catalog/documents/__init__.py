"""Values as JSON documents, and plan versions as differences to the version before.

Doors: codec, plan_differences.
"""
