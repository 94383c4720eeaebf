"""Sources, a room for each kind: listed files, posted events, topics and generated rows."""
