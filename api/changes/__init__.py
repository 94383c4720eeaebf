"""Lists of changes over HTTP."""
