"""The engine with its first promise broken: it answers a delivery first and commits it 50 ms later.

A control: what a kill test finds wrong with this engine, it can find. Takes the command line of ``remediator``.
"""

from __future__ import annotations

import threading
import time

from remediator.cli import main
from remediator.core.alert import RawDelivery
from remediator.core.decode import decode
from remediator.engine.receive import Receipt, Receiver

commit = Receiver.accept


def accept(self: Receiver, raw: RawDelivery) -> Receipt:
    group = decode(raw.body, raw.received_at)

    def later() -> None:
        time.sleep(0.05)
        commit(self, raw)

    threading.Thread(target=later, daemon=True).start()
    return Receipt(delivery_id=0, n_alerts=len(group.alerts), n_bad_alerts=len(group.bad_alerts))


Receiver.accept = accept  # type: ignore[method-assign]

if __name__ == "__main__":
    main()
