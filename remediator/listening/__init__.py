"""What every HTTP server here does with its address and its connections, before any of it is a call.

Used by ``web`` and ``exporter``, which know nothing of each other. One file for each trouble: an address that is taken
(``address``), a head that never ends (``head``), descriptors that are used up (``loop_errors``), a certificate that is
renewed (``tls``, by ``stamp``). ``serving`` puts uvicorn together with them.
"""
