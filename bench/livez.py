"""`python -m bench.livez PORT`: ask an API all the time whether it lives, and print the longest answer in ms.

The first line says that it has begun; it ends with stdin. It is a process of its own: a thread stands still while its
process encodes or decodes JSON, and takes that for a stall of the API.
"""

import http.client
import select
import sys
import time
from typing import Final

LOOK_S: Final = 0.005


def longest_ms(port: int) -> float:
    """Return the longest time of an answer to GET /livez, once stdin has ended."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    longest = 0.0
    print(flush=True)
    while not select.select([sys.stdin], [], [], LOOK_S)[0]:
        began = time.perf_counter()
        client.request("GET", "/livez")
        client.getresponse().read()
        longest = max(longest, time.perf_counter() - began)
    client.close()
    return longest * 1000


if __name__ == "__main__":
    print(longest_ms(int(sys.argv[1])))
