"""How tests make clients of plain HTTP."""

import ssl
from typing import Final

NO_AUTHORITIES: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Pass it as `verify`. By default, each client loads the certificates of all authorities: 25 ms of CPU time."""
