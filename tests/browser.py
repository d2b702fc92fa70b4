"""A real browser for pages: headless chromium when it is installed, a skip with a reason when it is not.

The page is opened with its own policy in force; a driver script is let in by adding its hash to it. What the driver leaves in
``document.title`` comes back.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium installed")

CONTRAST = """
function rgb(text){return text.match(/[\\d.]+/g).map(Number)}
function light(c){return c.slice(0,3).map(function(v){v/=255;return v<=.03928?v/12.92:Math.pow((v+.055)/1.055,2.4)})
  .reduce(function(sum,v,i){return sum+v*[.2126,.7152,.0722][i]},0)}
function behind(e){for(;e;e=e.parentElement){var c=rgb(getComputedStyle(e).backgroundColor);if(c.length<4||c[3]>.99)return c}return[255,255,255]}
function contrast(e){var a=light(rgb(getComputedStyle(e).color)),b=light(behind(e));return(Math.max(a,b)+.05)/(Math.min(a,b)+.05)}
"""
"""WCAG 2 contrast of an element's text against what is behind it: ``contrast(element)``."""


def drive(page: str, script: str, folder: Path, *, dark: bool = False, width: int = 1400) -> Any:
    """Open ``page``, run ``script`` (it must set ``document.title`` to JSON), and return that value."""
    assert CHROMIUM is not None
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "script-src 'sha256-" in page
    driven = page.replace("script-src '", f"script-src 'sha256-{digest}' '", 1).replace(
        "</body>", f"<script>{script}</script></body>"
    )
    path = folder / "page.html"
    path.write_text(driven, encoding="utf-8")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--window-size={width},1000"]
    command += [
        f"--user-data-dir={folder / 'profile'}",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        "--dump-dom",
    ]
    done = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, timeout=120, check=False)
    found = re.search(r"<title>(.*?)</title>", done.stdout, re.S)
    assert found, done.stderr[-2000:]
    return json.loads(html.unescape(found[1]))
