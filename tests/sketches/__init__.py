"""Sketches of the EDBT 2004 paper: frequent keys and join sizes of two streams in bounded memory."""
