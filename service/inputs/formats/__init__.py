"""File formats: each module has ``inspect_*`` (facts, or UnusableFile) and ``read_*`` (rows)."""
