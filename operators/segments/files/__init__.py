"""The files of segments, patches and plans, which all processes of a job share.

Doors: segment_files.
"""
