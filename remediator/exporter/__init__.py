"""The GPU exporter: what the driver says of each GPU and each process, with what leaks, as Prometheus metrics.

An entry point of its own, beside ``web`` and ``cli``: it runs on every GPU host and needs neither store nor playbooks.
"""
