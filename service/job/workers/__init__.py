"""Python processes that Spark starts: a fork server makes them fast to start, and a daemon forks workers."""
