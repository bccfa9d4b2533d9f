"""slow.py SECONDS HOST:PORT...: keeps 200 connections open to each address, and sends a byte to each every 4 s.

A third of them is silent, a third sends a request's head, a third a body that never ends; to port 9443 half by TLS.
A connection that the server closes is opened again.
"""

import socket
import ssl
import sys
import threading
import time

CONNECTIONS = 200
PAUSE = 4
BODY = b"POST /livez HTTP/1.1\r\nHost: slow\r\nContent-Type: application/json\r\nContent-Length: 60000000\r\n\r\n"
STARTS = [b"", b"GET /livez HTTP/1.1\r\nX: ", BODY]

tls = ssl.create_default_context()
tls.check_hostname = False
tls.verify_mode = ssl.CERT_NONE


class Slow:
    def __init__(self, address, number):
        self.address = address
        self.start = STARTS[number % 3]
        self.tls = address[1] == 9443 and number % 2 == 0
        self.socket = None
        self.opened = 0

    def tick(self):
        try:
            if self.socket is None:
                self.socket = socket.create_connection(self.address, timeout=1)
                self.opened += 1
                if self.tls:
                    self.socket = tls.wrap_socket(self.socket)
                self.socket.sendall(self.start)
                self.socket.setblocking(False)
            elif self.start:
                self.socket.send(b" ")
            elif self.socket.recv(1) == b"":
                self.close()
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self.close()

    def close(self):
        if self.socket is not None:
            self.socket.close()
            self.socket = None


def attack(connections):
    while True:
        began = time.monotonic()
        for connection in connections:
            connection.tick()
        time.sleep(max(0.0, began + PAUSE - time.monotonic()))


addresses = [(host, int(port)) for host, port in (target.rsplit(":", 1) for target in sys.argv[2:])]
attacks = [[Slow(address, number) for number in range(CONNECTIONS)] for address in addresses]
for connections in attacks:
    threading.Thread(target=attack, args=[connections], daemon=True).start()
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    time.sleep(1)
    counts = (f"{host}:{port}={sum(c.opened for c in slow)}" for (host, port), slow in zip(addresses, attacks))
    print("opened", *counts, flush=True)
