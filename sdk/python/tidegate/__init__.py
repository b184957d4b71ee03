"""Client of Tidegate's HTTP API. Standard library only; safe for use by several threads.

    client = Tidegate("http://127.0.0.1:8080", token="tg_…")
    job = client.enqueue("shop", {"title": "Dawn"}, ttl="1h")
    job = client.wait(job["id"], timeout=60)

Jobs, batches and counts are dicts as the HTTP API returns them (docs/api.md). A request that got no response,
or 429 or 503, is repeated: jobs have an id, so that none is enqueued twice.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import math
import os
import random
import re
import time
import uuid
from datetime import datetime, timezone
from typing import Any, Dict, Iterable, Iterator, Mapping, Optional
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

__all__ = ["Tidegate", "Permit", "TidegateError", "PermitRefused", "verify_callback"]

Json = Dict[str, Any]

ENDED = frozenset({"completed", "failed", "cancelled", "expired"})
_AT_ONCE = 1000  # jobs of one request of enqueue_many
_LONGEST_WAIT = 30.0  # seconds of one request that waits
_REPEATED = frozenset({429, 502, 503, 504})


class _NoRedirects(HTTPRedirectHandler):
    """Makes a redirect an error: another host would get the token."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = build_opener(_NoRedirects)


class TidegateError(Exception):
    """A request was refused. problem is the response's document (RFC 9457), errors what is wrong with which field."""

    def __init__(self, status: int, problem: Json, retry_after: Optional[float] = None):
        self.status, self.problem, self.retry_after = status, problem, retry_after
        self.errors = problem.get("errors") or []
        details = "; ".join(f"{e.get('location')}: {e.get('message')}" for e in self.errors)
        super().__init__(f"{status}: {problem.get('detail') or problem.get('title') or 'no details'}" + (f" ({details})" if details else ""))


class PermitRefused(TidegateError):
    """No call may be made now. retry_after is in seconds; reason and until say why, and for how long."""

    @property
    def reason(self) -> str:
        return self.problem.get("reason", "")

    @property
    def until(self) -> Optional[str]:
        return self.problem.get("until")


class Tidegate:
    """A client. base_url and token default to TIDEGATE_URL and TIDEGATE_TOKEN. timeout is that of one request in
    seconds; retries is how often a request is repeated at most."""

    def __init__(self, base_url: Optional[str] = None, token: Optional[str] = None, timeout: float = 30, retries: int = 5):
        self._base = (base_url or os.environ.get("TIDEGATE_URL") or "http://127.0.0.1:8080").rstrip("/")
        self._token = token or os.environ.get("TIDEGATE_TOKEN")
        self._timeout, self._retries = timeout, retries

    # Jobs

    def enqueue(self, destination: str, payload: Any, *, id: Optional[str] = None, **fields: Any) -> Json:
        """Enqueues a job, and returns it. fields are those of the HTTP API: key, ttl, priority, order, batch, labels, retry,
        cost, request, available_at, delay, replace (the newest job of this key wins), replace_max, after, … With an id of your own the enqueue may be repeated."""
        job = {"id": id or str(uuid.uuid4()), "destination": destination, "payload": payload, **fields}
        return self._json("POST", "/v1/jobs", job)

    def enqueue_many(self, jobs: Iterable[Mapping[str, Any]]) -> Json:
        """Enqueues any number of jobs (dicts with destination and payload), a thousand a request while the
        iterable yields them. Returns {"accepted", "duplicates", "rejected", "items": the rejected ones, by index}."""
        counts: Json = {"accepted": 0, "duplicates": 0, "rejected": 0, "items": []}
        sent, several = 0, []
        for job in jobs:
            several.append({"id": str(uuid.uuid4()), **job})
            if len(several) == _AT_ONCE:
                sent += self._send_many(several, sent, counts)
                several = []
        if several:
            self._send_many(several, sent, counts)
        return counts

    def _send_many(self, jobs: list, before: int, counts: Json) -> int:
        lines = "".join(json.dumps(job, separators=(",", ":")) + "\n" for job in jobs).encode()
        try:
            answer = self._json("POST", "/v1/jobs", lines, {"Content-Type": "application/x-ndjson"})
        except TidegateError as e:
            if e.status != 422 or "items" not in e.problem:
                raise
            answer = e.problem
        for name in ("accepted", "duplicates", "rejected"):
            counts[name] += answer.get(name, 0)
        for item in answer.get("items") or []:
            counts["items"].append({**item, "index": before + item["index"]})
        return len(jobs)

    def get(self, id: str) -> Json:
        return self._json("GET", "/v1/jobs/" + _part(id))

    def wait(self, id: str, timeout: float = 60) -> Json:
        """Waits until the job has ended, and returns it; the job as it is if the timeout (seconds) is over before."""
        return self._wait("/v1/jobs/" + _part(id), timeout, lambda job: job["status"] in ENDED)

    def cancel(self, id: str, reason: str = "") -> Json:
        return self._json("POST", f"/v1/jobs/{_part(id)}/cancel", {"reason": reason} if reason else None)

    def mark_expired(self, id: str, reason: str = "") -> Json:
        """Expires a job that waits, before its time: it never runs, and its children are cancelled."""
        return self._json("POST", f"/v1/jobs/{_part(id)}/expire", {"reason": reason} if reason else None)

    def now(self) -> datetime:
        """The time of Redis, by which jobs start, are retried and expire."""
        text = self._json("GET", "/v1/time")["now"].rstrip("Z")
        whole, _, fraction = text.partition(".")  # of which Python 3.9 reads 3 or 6 digits
        return datetime.fromisoformat(f"{whole}.{fraction[:6]:0<6}").replace(tzinfo=timezone.utc)

    def retry(self, id: str, set: Optional[Mapping[str, Any]] = None, reason: str = "") -> Json:
        """Runs a failed or cancelled job again. set changes it before: values by their paths, such as
        {"payload.title": "Sunset"}."""
        body = {**({"set": dict(set)} if set else {}), **({"reason": reason} if reason else {})}
        return self._json("POST", f"/v1/jobs/{_part(id)}/retry", body or None)

    def list_jobs(self, *, labels: Optional[Mapping[str, str]] = None, **filters: Any) -> Iterator[Json]:
        """Yields the jobs of a filter, the newest first and without payloads. filters are those of the HTTP API: status
        (several in a list), destination, key, batch, since, until, error, cause. A job has all of the labels."""
        query = [(name, one) for name, value in filters.items() for one in (value if isinstance(value, (list, tuple)) else [value])]
        query += [("label", f"{k}={v}") for k, v in (labels or {}).items()]
        cursor = ""
        while True:
            page = self._json("GET", "/v1/jobs?" + urlencode([*query, *([("cursor", cursor)] if cursor else [])]))
            yield from page["items"]
            cursor = page["next"]
            if not cursor:
                return

    def act(self, action: str, **selection: Any) -> Json:
        """Does cancel, pause, resume, retry or expire to all jobs of a selection, and returns {"done", "asked", "refused"}.
        The selection has the fields of a filter, with labels as a dict and status as a list; also reason and dry_run."""
        return self._json("POST", "/v1/jobs/" + _part(action), selection)

    # Results of jobs that their API has accepted

    def complete(self, id: str, output: Any = None) -> Json:
        """Completes a job that its API has accepted; its children start with the output."""
        return self._report(id, {"status": "completed", "output": output})

    def fail(self, id: str, error: str = "") -> Json:
        """Fails a job that its API has accepted. Its policy decides whether it runs again."""
        return self._report(id, {"status": "failed", "error": error or None})

    def progress(self, id: str, progress: Any = None, extend: Optional[float] = None) -> Json:
        """Says how far a job is that its API has accepted, and moves the deadline of its result by extend (seconds)."""
        return self._report(id, {"progress": progress, "extend": None if extend is None else f"{extend:g}s"})

    def _report(self, id: str, result: Json) -> Json:
        return self._json("PATCH", "/v1/jobs/" + _part(id), {k: v for k, v in result.items() if v is not None})

    # Batches

    def batch(self, name: str) -> Json:
        return self._json("GET", "/v1/batches/" + _part(name))

    def wait_batch(self, name: str, timeout: float = 60) -> Json:
        """Waits until all jobs of the batch have ended, as wait does."""
        return self._wait("/v1/batches/" + _part(name), timeout, lambda batch: batch["done"])

    def batch_jobs(self, name: str, timeout: Optional[float] = None) -> Iterator[Json]:
        """Yields each job of a batch once it has ended, and returns when all have: jobs that wait, such as scheduled
        or paused ones, are waited for. After the timeout (seconds; None: never; 0: at once) it yields the others as
        they are. A job's response is None if the token has neither the scope payloads nor operate."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        yielded, pause = set(), 1.0
        while True:
            began = time.monotonic()
            last, unended = began >= deadline, 0
            for job in self._jobs_of(name):
                if job["id"] in yielded:
                    continue
                if last or job["status"] in ENDED:
                    yielded.add(job["id"])
                    yield job
                else:
                    unended += 1
            if not unended:
                return
            now = time.monotonic()
            # Each pass reads the whole batch: it takes at most half of the time.
            self.wait_batch(name, max(0.0, min(deadline - now, max(pause, now - began))))
            pause = min(2 * pause, 30.0)

    def _jobs_of(self, name: str) -> Iterator[Json]:
        with self._open("GET", f"/v1/batches/{_part(name)}/jobs", None, {"Accept": "application/x-ndjson"}) as response:
            for line in response:
                if line.strip():
                    job = json.loads(line)
                    if "id" not in job and isinstance(job.get("status"), int):  # the list broke off
                        raise TidegateError(job["status"], job)
                    yield job

    def cancel_batch(self, name: str, reason: str = "") -> Json:
        return self.act("cancel", batch=name, **({"reason": reason} if reason else {}))

    # Permits

    def permit(self, destination: str, *, key: str = "", cost: int = 1, wait: float = 0, lease: Optional[float] = None, **fields: Any) -> "Permit":
        """Returns the permit of one call that is no job, or raises PermitRefused. With wait (seconds) it queues
        for it. fields are those of the HTTP API for named limits: costs, payload. Use it as a context manager:

            with client.permit("shop", key="alice", wait=30) as permit:
                response = session.get(url)
                permit.response(response.status_code, response.headers)

        An exception in the block reports a failure; a block without a report a success. A permit that is not
        reported ends with its lease (seconds)."""
        body: Json = {"destination": destination, "cost": cost, **fields}
        if key:
            body["key"] = key
        if lease is not None:
            body["lease"] = f"{lease:g}s"
        deadline = time.monotonic() + wait
        while True:
            left = deadline - time.monotonic()
            headers = {"Prefer": f"wait={max(1, min(round(left), int(_LONGEST_WAIT)))}"} if left > 0 else {}
            try:
                granted = self._json("POST", "/v1/permits", body, headers, repeated=_REPEATED - {429})
                return Permit(self, granted)
            except TidegateError as e:
                if e.status != 429:
                    raise
                left = deadline - time.monotonic()
                if left <= 0:
                    raise PermitRefused(e.status, e.problem, e.retry_after) from None
                time.sleep(min(left, max(0.05, min(e.retry_after or 1.0, 5.0))))

    # HTTP

    def _wait(self, path: str, timeout: float, ended: Any) -> Json:
        deadline, pause = time.monotonic() + timeout, 0.1
        while True:
            began = time.monotonic()
            left = max(0.0, min(deadline - began, _LONGEST_WAIT))
            answer = self._json("GET", path + "?" + urlencode({"wait": f"{left:.3f}s"}), patience=left)
            now = time.monotonic()
            if ended(answer) or now >= deadline:
                return answer
            if now - began < left / 2:  # an early answer, such as of an instance that stops
                time.sleep(min(pause, deadline - now))
                pause = min(2 * pause, 5.0)

    def _json(self, method: str, path: str, body: Any = None, headers: Optional[Mapping[str, str]] = None, **how: Any) -> Any:
        with self._open(method, path, body, headers, **how) as response:
            text = response.read()
        return json.loads(text) if text else None

    def _open(self, method: str, path: str, body: Any, headers: Optional[Mapping[str, str]] = None, patience: float = 0, repeated: frozenset = _REPEATED) -> Any:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        all_headers = {"User-Agent": "tidegate-python/0.1.0", **({"Content-Type": "application/json"} if data is not None else {}), **(headers or {})}
        if self._token:
            all_headers["Authorization"] = "Bearer " + self._token
        if int(float(all_headers.get("Prefer", "wait=0")[5:])) > 0:
            patience = _LONGEST_WAIT
        for tried in range(self._retries + 1):
            last = tried == self._retries
            pause = min(10.0, 0.2 * 2**tried) * (0.5 + random.random() / 2)
            try:
                return _OPENER.open(Request(self._base + path, data, all_headers, method=method), timeout=self._timeout + patience)
            except HTTPError as e:
                with e:
                    moved = {"detail": "redirects are not followed: give base_url the API's own address"}
                    error = TidegateError(e.code, moved if 300 <= e.code < 400 else _problem(e), _seconds(e.headers.get("Retry-After")))
                if last or e.code not in repeated:
                    raise error from None
                pause = max(pause, min(error.retry_after or 0.0, 30.0))
            except (OSError, http.client.HTTPException):
                if last:
                    raise
            time.sleep(pause)
        raise AssertionError("unreachable")


class Permit:
    """Permission for one call. Report what the call came to; only the first report counts."""

    def __init__(self, client: Tidegate, granted: Json):
        self._client, self._reported = client, False
        self.id: str = granted["id"]
        self.granted = granted

    def report(self, outcome: str, **fields: Any) -> bool:
        """outcome is success, limited, failure, unauthorized, neutral, or unused if no call was made. fields:
        retry_after ("30s") of a limit, cost and costs that it really had, error. Returns False if the permit had
        ended before, by its lease or an earlier report."""
        return self._send({"outcome": outcome, **fields})

    def response(self, status: int, headers: Optional[Mapping[str, str]] = None, **fields: Any) -> bool:
        """Reports the API's response, as report does: Tidegate reads its status, and limits from its headers."""
        names = {str(k): str(v) for k, v in (headers or {}).items() if _tells(str(k))}
        return self._send({"status": status, "headers": names, **fields})

    def _send(self, report: Json) -> bool:
        if self._reported:
            return False
        self._reported = True
        try:
            self._client._json("POST", f"/v1/permits/{_part(self.id)}/report", report)
        except TidegateError as e:
            if e.status != 404:
                raise
            return False
        return True

    def __enter__(self) -> "Permit":
        return self

    def __exit__(self, kind: Any, error: Any, _: Any) -> None:
        if error is None:
            self.report("success")
        elif not self._reported:
            try:
                self.report("failure" if isinstance(error, Exception) else "neutral", error=str(error)[:300])
            except (OSError, TidegateError):
                pass  # the error of the call is what matters; the lease ends by itself


def verify_callback(secret: str, headers: Mapping[str, str], body: bytes) -> Json:
    """Returns the event of a callback that was signed with secret (several, separated by commas, while it is
    replaced) within the last five minutes; otherwise raises ValueError. body is what came, byte for byte."""
    given = {k.lower(): v for k, v in headers.items()}
    stamp = given.get("webhook-timestamp", "")
    if not (stamp.isascii() and stamp.isdecimal()) or abs(time.time() - int(stamp)) > 300:
        raise ValueError("the timestamp is missing, too old or in the future")
    signed = f"{given.get('webhook-id', '')}.{stamp}.".encode() + body
    for one in secret.split(","):
        one = one.strip()
        key = base64.b64decode(one[6:] if one.startswith("whsec_") else one, validate=True)
        if len(key) < 16:
            raise ValueError("a secret is empty or too short")
        want = b"v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
        for signature in given.get("webhook-signature", "").split():
            if hmac.compare_digest(signature.encode(), want):
                return json.loads(body)
    raise ValueError("no signature is by this secret")


_TELLING = re.compile("limit|remaining|reset|retry|quota|usage|^date$|^age$", re.IGNORECASE)


def _tells(name: str) -> bool:
    """Headers that may announce a limit; others may hold secrets and stay here."""
    return _TELLING.search(name) is not None


def _part(name: str) -> str:
    return quote(name, safe="")


def _problem(response: Any) -> Json:
    try:
        problem = json.loads(response.read(1 << 20))
    except (ValueError, OSError, http.client.HTTPException):
        return {}
    return problem if isinstance(problem, dict) else {}


def _seconds(text: Optional[str]) -> Optional[float]:
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return None
