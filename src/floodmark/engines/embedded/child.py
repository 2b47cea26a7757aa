"""The program of the server's process: a Spark Connect server of Sail on loopback, that ends with the process that has started it.

It is run as a file, so that it imports nothing of floodmark's. Its standard input is a pipe of its parent's: at its end, however the
parent has ended, the process is gone.
"""

from __future__ import annotations

import os
import sys

from pysail.spark import SparkConnectServer


def main() -> None:
    """Serve until the parent is gone; the port is the only line that is written."""
    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    address = server.listening_address
    if address is None:
        os._exit(1)
    sys.stdout.write(f"{address[1]}\n")
    sys.stdout.flush()
    while os.read(0, 1024):
        pass
    os._exit(0)  # queries that still run are nobody's


if __name__ == "__main__":
    main()
