"""Tests against the server of TIDEGATE_URL, whose destination "shop" publishes; internal/test/e2e/sdk_test.go starts it."""

import base64
import hashlib
import hmac
import json
import os
import threading
import time
import unittest
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tidegate import PermitRefused, Tidegate, TidegateError, verify_callback


class Jobs(unittest.TestCase):
    def setUp(self):
        self.client = Tidegate()

    def test_a_job_is_enqueued_once_and_waited_for(self):
        job = self.client.enqueue("shop", {"title": "Dawn"}, id="py-1", key="alice", ttl="1h")
        again = self.client.enqueue("shop", {"title": "Dawn"}, id="py-1", key="alice", ttl="1h")
        self.assertEqual((job["duplicate"], again["duplicate"]), (False, True))
        done = self.client.wait("py-1", timeout=60)
        self.assertEqual(done["status"], "completed", done)
        self.assertEqual(done["response"]["status"], 201)

    def test_a_bad_job_is_refused_with_its_field(self):
        with self.assertRaises(TidegateError) as refused:
            self.client.enqueue("shop", 1, priority="urgent")
        self.assertEqual(refused.exception.status, 422)
        self.assertIn("priority", refused.exception.errors[0]["location"])

    def test_many_jobs_of_a_batch(self):
        jobs = ({"destination": "shop", "payload": n, "batch": "py"} for n in range(1200))
        counts = self.client.enqueue_many(jobs)
        self.assertEqual((counts["accepted"], counts["rejected"]), (1200, 0), counts)
        self.client.enqueue("shop", 1, id="py-far", batch="py-far", available_at="2100-01-01T00:00:00Z")
        self.assertEqual([job["status"] for job in self.client.batch_jobs("py-far", timeout=0)], ["pending"])
        jobs = list(self.client.batch_jobs("py"))
        self.assertEqual({(job["status"], job["response"]["status"]) for job in jobs}, {("completed", 201)})
        self.assertEqual(len({job["id"] for job in jobs}), 1200)

    def test_rejected_ones_are_named_by_their_place(self):
        good, bad = {"destination": "shop", "payload": 1}, {"destination": "no such"}
        counts = self.client.enqueue_many([good] * 1001 + [bad])
        self.assertEqual((counts["accepted"], counts["rejected"]), (1001, 1))
        self.assertEqual([item["index"] for item in counts["items"] if item.get("errors")], [1001])
        counts = self.client.enqueue_many([good] * 1000 + [bad, bad])  # the second request is refused as a whole
        self.assertEqual((counts["accepted"], counts["rejected"]), (1000, 2))
        self.assertEqual([item["index"] for item in counts["items"] if item.get("errors")], [1000, 1001])

    def test_cancel(self):
        self.client.enqueue("shop", 1, id="py-later", available_at="2100-01-01T00:00:00Z")
        self.assertTrue(self.client.cancel("py-later", "wrong")["done"])
        self.assertEqual(self.client.wait("py-later", timeout=5)["status"], "cancelled")

    def test_expire_and_the_time_of_the_server(self):
        self.client.enqueue("shop", 1, id="py-stale", available_at=(self.client.now() + timedelta(days=1)).isoformat())
        self.assertTrue(self.client.mark_expired("py-stale", "no longer needed")["done"])
        self.assertEqual(self.client.wait("py-stale", timeout=5)["status"], "expired")
        self.assertLess(abs(self.client.now() - datetime.now(timezone.utc)), timedelta(minutes=1))

    def test_labels(self):
        for name, run in (("py-l1", "1"), ("py-l2", "2")):
            self.client.enqueue("shop", 1, id=name, labels={"team": "py", "run": run}, available_at="2100-01-01T00:00:00Z")
        self.assertEqual(self.client.get("py-l1")["labels"], {"team": "py", "run": "1"})
        found = self.client.list_jobs(labels={"team": "py"}, destination="shop", status=["pending", "paused"], limit=1)
        self.assertEqual({job["id"] for job in found}, {"py-l1", "py-l2"})
        self.assertEqual(self.client.act("cancel", labels={"team": "py", "run": "2"})["done"], 1)
        self.assertEqual([job["id"] for job in self.client.list_jobs(labels={"team": "py"}, status="pending")], ["py-l1"])

    def test_results_from_outside(self):
        retry = {"max_retries": 1, "initial_delay_secs": 3600}
        for name in ("py-good", "py-bad"):
            self.client.enqueue("shop", 1, id=name, request={"path": "/accept"}, retry=retry)
            while (self.client.get(name)["waiting"] or {}).get("reason") != "accepted":
                time.sleep(0.02)
        self.client.progress("py-good", {"percent": 40}, extend=3600)
        self.assertEqual(self.client.get("py-good")["progress"], {"percent": 40})
        self.client.complete("py-good", {"n": 7})
        self.assertEqual(self.client.wait("py-good", timeout=60)["output"], {"n": 7})
        self.client.fail("py-bad", "damaged")
        failed = self.client.get("py-bad")
        self.assertEqual((failed["status"], failed["attempt"], failed["last_error"]), ("retry_pending", 1, "damaged"))


class Permits(unittest.TestCase):
    def setUp(self):
        self.client = Tidegate()

    def test_a_limited_response_stops_the_next_caller(self):
        with self.client.permit("uploads", key="py") as permit:
            permit.response(201, {"X-Secret": "no"})
        with self.client.permit("uploads", key="py") as permit:
            permit.response(429, {"Retry-After": "60"})
        with self.assertRaises(PermitRefused) as refused:
            self.client.permit("uploads", key="py")
        self.assertGreater(refused.exception.retry_after, 30)
        self.assertEqual(refused.exception.reason, "breaker_open")

    def test_an_exception_in_the_block_goes_on(self):
        with self.assertRaises(KeyError):
            with self.client.permit("uploads", key="py2"):
                raise KeyError("x")


    def test_a_report_that_comes_too_late_is_no_error_of_the_call(self):
        with self.client.permit("uploads", key="py3", lease=60) as permit:
            self.assertTrue(permit.response(200, cost=1))
        late = self.client.permit("uploads", key="py3")
        late.id = permit.id
        self.assertFalse(late.report("success"))


class Strange(unittest.TestCase):
    """Against a server that redirects, or answers waits at once."""

    def test_redirects_are_not_followed_and_early_answers_not_repeated_at_once(self):
        asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path.split("?")[0])
                if "moved" in self.path:
                    self.send_response(307)
                    self.send_header("Location", "/elsewhere")
                    self.end_headers()
                    return
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b'{"status": "pending"}')

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            client = Tidegate(f"http://127.0.0.1:{server.server_port}", token="tg_secret")
            with self.assertRaises(TidegateError) as moved:
                client.get("moved")
            self.assertEqual((moved.exception.status, asked), (307, ["/v1/jobs/moved"]))
            self.assertIn("base_url", str(moved.exception))
            self.assertEqual(client.wait("early", timeout=1)["status"], "pending")
            self.assertLess(len(asked), 8)
        finally:
            server.shutdown()
            server.server_close()


class Callbacks(unittest.TestCase):
    def test_signatures(self):
        key, body = b"k" * 32, json.dumps({"type": "job.completed"}).encode()
        secret, stamp = "whsec_" + base64.b64encode(key).decode(), str(int(time.time()))
        mac = hmac.new(key, f"id.{stamp}.".encode() + body, hashlib.sha256).digest()
        headers = {"Webhook-Id": "id", "Webhook-Timestamp": stamp, "Webhook-Signature": "v1,bad v1," + base64.b64encode(mac).decode()}
        self.assertEqual(verify_callback("whsec_" + base64.b64encode(b"o" * 32).decode() + "," + secret, headers, body)["type"], "job.completed")
        for changed in (body + b" ", b""):
            with self.assertRaises(ValueError):
                verify_callback(secret, headers, changed)
        with self.assertRaises(ValueError):
            verify_callback(secret + ",", headers, body + b" ")
        with self.assertRaises(ValueError):
            verify_callback(secret, {**headers, "Webhook-Timestamp": "1"}, body)


if __name__ == "__main__":
    os.environ["TIDEGATE_URL"]  # it says where the server is
    unittest.main()
