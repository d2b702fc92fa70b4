"""The child process: one case as JSON on stdin, what happened as JSON lines on stdout. ``python -m moe_preflight.smoke.worker``.

This process alone imports torch and AITER. Lines are ``{"event": "phase" | "machine" | "log" | "result" | "kernels" | "poison"
| "native" | "end", ...}``; the last one is ``end`` unless the process died.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import sys
from typing import Any

from moe_preflight.smoke import isolate
from moe_preflight.smoke.case import SmokeCase
from moe_preflight.smoke.memory import free_ram
from moe_preflight.smoke.wire import TEXT, Stop, Wire, is_out_of_memory


def main() -> int:
    wire = Wire(isolate.own_stdout())
    isolate.die_with_parent()
    faulthandler.enable()
    try:
        order = json.load(sys.stdin)
        wire.enter("import torch")
        found = machine(order["device"])
        wire.send("machine", **found)
        if order["op"] == "launch":
            from moe_preflight.smoke.launch import Launch

            Launch(SmokeCase.from_json(order["case"]), order, found, wire).run()
    except Stop as stop:
        wire.send("end", status=stop.status, text=stop.text[:TEXT])
        return 0
    except MemoryError:
        wire.send("end", status="out-of-memory", text=f"out of memory while: {wire.phase}")
        return 0
    except ImportError as e:
        wire.send("end", status="error", text=f"{wire.phase}: {e}"[:TEXT])
        return 0
    except Exception as e:
        status = "out-of-memory" if is_out_of_memory(e) else "error"
        wire.send("end", status=status, text=f"{wire.phase}: {type(e).__name__}: {e}"[:TEXT])
        return 0
    wire.send("end", status="done", text="")
    return 0


def machine(device: str) -> dict[str, Any]:
    """What this machine can run: torch, HIP or CUDA, the chosen GPU and its free memory, and the AITER found (not imported)."""
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    out: dict[str, Any] = {
        "torch": torch.__version__,
        "hip": torch.version.hip,
        "cuda": torch.version.cuda,
        "gpus": gpus,
        "gpu": None,
        "gfx": None,
        "cu_num": None,
        "free": free_ram(),
        "aiter": None,
        "aiter_found": False,
    }
    if gpus and device != "cpu":
        index = 0 if device == "auto" else int(device)
        if index < gpus:
            properties = torch.cuda.get_device_properties(index)
            out["gpu"] = properties.name
            out["gfx"] = getattr(properties, "gcnArchName", "").partition(":")[0] or None if torch.version.hip else None
            out["cu_num"] = properties.multi_processor_count
            with contextlib.suppress(RuntimeError):
                out["free"] = torch.cuda.mem_get_info(index)[0]
    package = isolate.aiter_package()
    if package is not None:
        out["aiter_found"], out["aiter"] = True, isolate.aiter_version(package)
    return out


if __name__ == "__main__":
    sys.exit(main())
