"""A loopback server that speaks enough of the hub for the real client: HEAD and GET of ``/{repo}/resolve/{revision}/{file}``.

Repositories are dicts of files; faults are set per repository. Requests are recorded, so a test can say what was not asked.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

COMMIT = "a" * 40


@dataclass
class Repo:
    """``fault``: gated, private, missing, forbidden, disabled, broken, slow, nohub, redirect (to ``moved_to``) or none."""

    files: dict[str, bytes] = field(default_factory=dict)
    commit: str = COMMIT
    revisions: tuple[str, ...] = ("main",)
    fault: str = ""
    moved_to: str = ""
    delay: float = 0.0
    token: str | None = None
    says_size: int | None = None
    ranges: bool = True


@dataclass
class Hub:
    """``url`` is what HF_ENDPOINT should be; ``asked`` are (method, path, authorization) in order."""

    url: str = ""
    repos: dict[str, Repo] = field(default_factory=dict)
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)

    def add(self, repo_id: str, config: Any = None, **settings: Any) -> Repo:
        repo = Repo(**settings)
        if config is not None:
            repo.files["config.json"] = config if isinstance(config, bytes) else json.dumps(config).encode()
        self.repos[repo_id] = repo
        return repo

    def files_asked(self, method: str) -> list[str]:
        return [path.rsplit("/", 1)[1] for m, path, _ in self.asked if m == method]


ERRORS = {
    "gated": (403, "GatedRepo", "Access to model is restricted."),
    "gated401": (401, "GatedRepo", "Access to model is restricted."),
    "private": (401, "RepoNotFound", "Repository not found"),
    "missing": (404, "RepoNotFound", "Repository not found"),
    "forbidden": (403, None, "Forbidden"),
    "disabled": (403, None, "Access to this resource is disabled."),
    "broken": (500, None, "Internal Error"),
    "down": (503, None, "Service Unavailable"),
}


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, *, body: bool) -> None:
            hub.asked.append((self.command, self.path, self.headers.get("authorization")))
            path = unquote(self.path.split("?")[0]).strip("/")
            repo_id, slash, rest = path.partition("/resolve/")
            if not slash:
                return self.refuse(404, None, "Not Found")
            revision, _, filename = rest.partition("/")
            repo = hub.repos.get(repo_id)
            if repo is None:
                return self.refuse(*ERRORS["missing"])
            if repo.fault == "slow":
                time.sleep(repo.delay)
            if repo.fault == "redirect":
                return self.reply(307, b"", {"Location": f"/{repo.moved_to}/resolve/{revision}/{filename}"}, body)
            if repo.fault == "nohub":
                return self.reply(200, b"<html>Please log in to the hotel network</html>", {}, body)
            if repo.fault in ERRORS:
                return self.refuse(*ERRORS[repo.fault])
            if repo.token is not None and self.headers.get("authorization") != f"Bearer {repo.token}":
                return self.refuse(*ERRORS["private"])
            if revision not in (*repo.revisions, repo.commit):
                return self.refuse(404, "RevisionNotFound", "Invalid rev id")
            head = {"X-Repo-Commit": repo.commit}
            if filename not in repo.files:
                return self.refuse(404, "EntryNotFound", "Entry not found", head)
            data = repo.files[filename]
            head["ETag"] = f'"{hashlib.sha1(data).hexdigest()}"'
            wanted = self.headers.get("range", "")
            if wanted.startswith("bytes=") and repo.ranges:
                first, last = (int(x) for x in wanted[6:].split("-"))
                part = data[first : last + 1]
                head["Content-Range"] = f"bytes {first}-{first + len(part) - 1}/{len(data)}"
                return self.reply(206, part, head, body)
            return self.reply(200, data, head, body, size=repo.says_size)

        def refuse(self, status: int, code: str | None, message: str, extra: dict[str, str] | None = None) -> None:
            head = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {}), **(extra or {})}
            self.reply(status, message.encode(), head, body=self.command == "GET")

        def reply(self, status: int, data: bytes, head: dict[str, str], body: bool, size: int | None = None) -> None:
            try:
                self.send_response(status)
                for key, value in head.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(data) if size is None else size))
                self.end_headers()
                if body:
                    self.wfile.write(data)
            except (BrokenPipeError, ConnectionResetError):
                pass

    return Handler


@contextmanager
def serve() -> Iterator[Hub]:
    """A running hub on a free loopback port."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
