"""Spark's JVM: which Java, how it is started and configured.

Doors: java, jvm, python_launcher.
"""
