"""The engine with its first promise broken: it answers a delivery first and commits it 50 ms later.

A control: what a kill test finds wrong with this engine, it can find. Takes the command line of ``remediator``.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

from remediator.cli import main
from remediator.core.alert import RawDelivery
from remediator.core.decode import decode
from remediator.engine.receive import Receipt, Receiver

submit = Receiver.submit


def answer_first(self: Receiver, raw: RawDelivery) -> Future[Receipt]:
    group = decode(raw.body, raw.received_at)

    def later() -> None:
        time.sleep(0.05)
        submit(self, raw)

    threading.Thread(target=later, daemon=True).start()
    answer: Future[Receipt] = Future()
    answer.set_result(Receipt(delivery_id=0, n_alerts=len(group.alerts), n_bad_alerts=len(group.bad_alerts)))
    return answer


Receiver.submit = answer_first  # type: ignore[method-assign]

if __name__ == "__main__":
    main()
