"""Python processes of Spark: a fork server and the daemon of its workers."""
