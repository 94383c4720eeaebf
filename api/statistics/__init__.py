"""Statistics and metrics over HTTP."""
