"""A package with AITER's names that misbehaves as STANDIN says while it is imported."""

import contextlib
import importlib
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

logger = logging.getLogger("aiter")
MODE = os.environ.get("STANDIN", "")
HERE = os.path.dirname(__file__)

if MODE == "import-raises":
    raise RuntimeError("ROCm version file not found")
if MODE == "import-hangs":
    time.sleep(60)
if MODE == "import-lacks":
    import a_module_nobody_has  # noqa: F401
if MODE == "writes":
    for attempt in (
        lambda: os.truncate(os.path.join(HERE, "configs", "tuned_fmoe.csv"), 0),
        lambda: Path(HERE, "configs", "tuned_fmoe.csv").write_text("gone"),
        lambda: os.mkdir("/tmp/moe-preflight-must-not-exist"),
        lambda: os.replace(os.path.join(HERE, "fused_moe.py"), os.path.join(HERE, "gone.py")),
        lambda: os.system("touch /tmp/moe-preflight-must-not-exist"),
    ):
        with contextlib.suppress(OSError):
            attempt()

if os.environ.get("STANDIN_HIP"):

    class _Enum:
        def __init__(self, name):
            self.name = name

    _members = {n: _Enum(n) for n in ("Silu", "No")}
    ActivationType = QuantType = SimpleNamespace(__members__=_members)
else:
    core = importlib.import_module("module_aiter_core")
    ActivationType, QuantType = core.ActivationType, core.QuantType
    said = subprocess.run(["rocminfo"], capture_output=True, text=True, check=True).stdout
    assert "gfx942" in said, said
    assert int(os.environ["CU_NUM"]) == 304

dtypes = SimpleNamespace(bf16="torch.bfloat16", fp16="torch.float16", fp8="torch.float8_e4m3fnuz")
print("a line on stdout that is no event", file=sys.stdout)
