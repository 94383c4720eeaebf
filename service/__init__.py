"""The engine, its Spark job, the command line and everything that knows Spark."""
