"""Where each entry of facts/dispatch_rules.HISTORY was read, at the tag of that release: file, function and line.

The line is that of the function in which the change shows; what changed is the entry itself.
"""

from __future__ import annotations

SOURCES: dict[str, str] = {
    "0.1.7.post2": "aiter/fused_moe.py fused_moe_:170, fused_moe_1stage_dict:451, get_padded_M:484, get_2stage_cfgs:505; "
    "aiter/jit/core.py update_config_files:73",
    "0.1.7.post3": "aiter/fused_moe.py fused_moe_1stage_dict:483, get_2stage_cfgs:539; aiter/jit/core.py update_config_files:192",
    "0.1.8": "aiter/fused_moe.py get_padded_M:512, get_2stage_cfgs:537",
    "0.1.9": "aiter/fused_moe.py fused_moe_:170, get_ksplit:483, get_padded_M:546, get_2stage_cfgs:573",
    "0.1.9.post1": "aiter/fused_moe.py get_ksplit:483, get_2stage_cfgs:573",
    "0.1.10": "aiter/fused_moe.py get_2stage_cfgs:588",
    "0.1.10.post1": "aiter/fused_moe.py get_2stage_cfgs:588",
    "0.1.10.post2": "aiter/fused_moe.py get_2stage_cfgs:593",
    "0.1.11": "aiter/fused_moe.py fused_moe_1stage_dict:570, get_2stage_cfgs:675; aiter/jit/core.py update_config_files:182",
    "0.1.12": "aiter/fused_moe.py fused_moe_1stage_dict:569, get_padded_M:607, get_2stage_cfgs:721; aiter/jit/core.py update_config_files:182",
    "0.1.12.post2": "aiter/jit/core.py update_config_files:182",
    "0.1.13rc1": "aiter/fused_moe.py fused_moe_:206, get_2stage_cfgs:727; aiter/jit/core.py update_config_files:183, get_config_file:299",
    "0.1.13rc4": "aiter/fused_moe.py fused_moe_:206, get_2stage_cfgs:730",
    "0.1.13rc5": "aiter/fused_moe.py fused_moe_:206, get_2stage_cfgs:735; aiter/jit/core.py update_config_files:183",
    "0.1.13.post1": "aiter/fused_moe.py fused_moe_:206, get_2stage_cfgs:738",
    "0.1.14rc0": "aiter/fused_moe.py fused_moe_:240, get_padded_M:665, get_2stage_cfgs:805",
    "0.1.15rc0": "aiter/fused_moe.py get_2stage_cfgs:856",
    "0.1.16": "aiter/fused_moe.py get_2stage_cfgs:978; aiter/jit/core.py update_config_files:198",
    "0.1.16.post1": "aiter/fused_moe.py fused_moe_:341, get_2stage_cfgs:981",
    "0.1.16.post4": "aiter/fused_moe.py get_2stage_cfgs:1515",
    "0.1.17rc0": "aiter/fused_moe.py fused_moe_:357, get_2stage_cfgs:1055",
    "0.1.18": "aiter/fused_moe.py get_2stage_cfgs:1667",
    "0.1.19": "aiter/fused_moe.py fused_moe_:539, get_2stage_cfgs:1703",
    "0.1.19.post1": "aiter/fused_moe.py _fused_moe_impl:646, get_2stage_cfgs:2008",
    "0.1.20": "aiter/fused_moe.py _fused_moe_impl:656, get_2stage_cfgs:2095",
    "0.1.20.post2": "aiter/fused_moe.py get_2stage_cfgs:2110 (e4048607)",
    "0.1.21": "public copies of aiter/fused_moe.py from after 2026-08-27; ROCm/aiter #4620 and #5115",
}
