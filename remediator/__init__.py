"""remediator: Alertmanager alerts in, safe and audited actions out.

The flow, one way, one value at a time:

1. receive   ``web`` → ``engine.receive``: an HTTP body becomes a committed ``RawDelivery``; only then 200
2. decode    ``core.decode``: bytes → ``AlertGroup`` of ``Alert``
3. match     ``core.match``: ``Alert`` + playbooks → ``Match``es (playbook, case, subject)
4. plan      ``core.plan``: ``Match`` → ``Plan``, complete: nobody reads the playbook or the alert after it
5. guard     ``core.guard`` called by ``engine.reserve``: ``Plan`` + ``Facts`` → allow, wait or refuse
6. execute   ``engine.execute``: ``PlannedStep`` → ``Outcome`` after 1..n attempts
7. verify    ``core.move``: looked at until it is settled whether it helped
8. record    ``engine.record``: every event into the hash-chained log, before and after each effect

Read ``engine/pipeline.py`` first.
"""

__version__ = "0.1.0"
