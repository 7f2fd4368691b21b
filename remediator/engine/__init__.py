"""The shell: order, time, threads. Read ``pipeline.py`` first; the decisions are in ``core``."""
