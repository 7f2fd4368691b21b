"""The certificate that HTTPS is served with: files → an ``SSLContext`` that takes up renewed ones by itself.

Certificates are renewed every few weeks by programs that know nothing of this one. So the files are looked at for each
connection, and read again when they changed, like token files: no restart, and connections under way keep theirs.

Must never: answer with half of a renewal, or stop answering because of a bad file. What was valid stays in use until
certificate, key and CA can be used together.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from remediator.errors import SettingsError
from remediator.listening.stamp import Stamp, stamp_of
from remediator.telemetry import get_logger

_log = get_logger(__name__)


class RenewedCertificate:
    """Certificate, key and clients' CA of the settings. For one event loop.

    Attributes:
        context: to serve with; each connection uses the newest files that could be read.
    """

    def __init__(self, cert: Path, key: Path, client_ca: Path | None) -> None:
        """Read the files.

        Args:
            cert: PEM with its chain.
            client_ca: callers must show a certificate of it; None = they need none.

        Raises:
            SettingsError: they cannot be used together.
        """
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._stamps = self._look()
        self._newest = self._read()
        self.context: ssl.SSLContext = _Newest(self._look_again)

    @classmethod
    def of(cls, cert: Path | None, key: Path | None, client_ca: Path | None) -> RenewedCertificate | None:
        """None where plain HTTP is served: without certificate or key.

        Raises:
            SettingsError: as for the class.
        """
        return cls(cert, key, client_ca) if cert and key else None

    def _look_again(self) -> ssl.SSLContext:
        stamps = self._look()
        if stamps != self._stamps:
            # Before reading: what changes meanwhile is read again for the next connection.
            self._stamps = stamps
            try:
                self._newest = self._read()
            except SettingsError as error:
                _log.error("TLS files not read; the last certificate stays in use", problem=str(error))
            else:
                _log.info("TLS files read again", cert=str(self._cert))
        return self._newest

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self._cert, self._key)
            if self._client_ca is not None:
                context.load_verify_locations(self._client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except OSError as error:
            # OpenSSL does not say which file it means.
            unread = next((f"{file}: " for file in self._files() if not os.access(file, os.R_OK)), "")
            raise SettingsError(
                f"tls_cert, tls_key or tls_client_ca cannot be used: {unread}{error.strerror or error}; they must be"
                " PEM files that belong together"
            ) from error
        return context

    def _look(self) -> tuple[Stamp, ...]:
        return tuple(stamp_of(file) for file in self._files())

    def _files(self) -> list[Path]:
        return [file for file in (self._cert, self._key, self._client_ca) if file is not None]


class _Newest(ssl.SSLContext):
    """What asyncio is given: hands each connection to the context that is newest then.

    (To change the context in the handshake, by ``sni_callback``, would leave sessions with this one: who was let in by
    a CA that is gone could take his up again, for hours, and is asked for no certificate then.)
    """

    def __new__(cls, _newest: Callable[[], ssl.SSLContext]) -> Self:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, newest: Callable[[], ssl.SSLContext]) -> None:
        self._newest = newest

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        return self._newest().wrap_bio(*args, **kwargs)
