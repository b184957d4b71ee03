"""Receives Tidegate's callbacks and verifies them. Python 3.9 or later, nothing else.

    WEBHOOK_SECRET=whsec_… PORT=8000 python3 receive.py
"""

import base64
import hashlib
import hmac
import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def verify(secret: str, headers, body: bytes) -> None:
    """Raises ValueError unless the callback was signed with the secret, within the
    last five minutes."""
    key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    stamp = headers.get("webhook-timestamp", "")
    if not stamp.isdecimal() or abs(time.time() - int(stamp)) > 300:
        raise ValueError("the timestamp is missing, too old or in the future")
    signed = f"{headers.get('webhook-id', '')}.{stamp}.".encode() + body
    want = b"v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
    for signature in headers.get("webhook-signature", "").split():
        if hmac.compare_digest(signature.encode(), want):  # in constant time
            return
    raise ValueError("no signature is by this secret")


# Callbacks are far shorter; the sender is not verified yet.
MOST = 1 << 20


class Receiver(BaseHTTPRequestHandler):
    timeout = 10  # seconds for each read and write

    def do_POST(self):
        length = self.headers.get("content-length", "")
        if not (length.isascii() and length.isdecimal()):
            self.answer(411, "the length is missing")
            return
        if len(length) > 9 or int(length) > MOST:
            self.answer(413, "too long")
            return
        # The raw bytes: the signature does not match JSON that was parsed and encoded again.
        body = self.rfile.read(int(length))
        try:
            verify(os.environ["WEBHOOK_SECRET"], self.headers, body)
        except ValueError as problem:
            self.answer(401, str(problem))
            return
        event = json.loads(body)
        # Here: ignore a webhook-id that was handled before. Otherwise handle the event,
        # or enqueue it, and store the id.
        print(self.headers["webhook-id"], event["type"], event["data"]["id"], flush=True)
        self.answer(204)

    def answer(self, status, text=""):
        self.send_response(status)
        if text:
            self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", 0))), Receiver)
    print("listening on", "%s:%d" % server.server_address, flush=True)
    server.serve_forever()
