"""Spark's JVM: the choice of the Java, the start of the JVM, and Spark's configuration.

Doors: java, jvm, python_launcher.
"""
