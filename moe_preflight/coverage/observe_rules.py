"""The text of what an engine's log can prove or disprove."""

from __future__ import annotations

from moe_preflight.rules.rule import Rule

CONTRADICTED = Rule(
    code="MP721",
    name="observed-contradicts",
    severity="error",
    depends="AITER's log lines were found",
    what="The log shows another choice than the one predicted for the same key.",
    why="Either the machine runs another AITER, other tables or other switches than were judged, or this tool is wrong; a verdict "
    "built on the prediction does not hold there.",
    example="Predicted a tuned row; the log says default.",
    remedy="Judge with the AITER of that machine (--aiter, --aiter-version, --engine-env), then look at what still differs.",
    source="aiter/fused_moe.py get_2stage_cfgs (the log line of every release)",
)
NEVER = Rule(
    code="MP722",
    name="observed-never-predicted",
    severity="warning",
    depends="models were named",
    what="Production asks for a key that none of the named models and splits would ask for.",
    why="What was checked is not what is served: another model, split, quantization or padding runs there.",
    example="The log holds inter_dim 512, the named split has 256.",
    remedy="Name the model, --tp and --ep of the deployment that wrote the log.",
    source="the log itself",
)
UNTUNED = Rule(
    code="MP723",
    name="observed-untuned",
    severity="warning",
    depends="AITER's log lines were found",
    what="Production asks for token buckets that have no tuned row: AITER ran its heuristic.",
    why="These are the batch sizes that are really served, so tuning them pays.",
    example="decode buckets 1-64 default, prefill tuned.",
    remedy="Tune these keys first: moe-preflight tune writes them.",
    source="aiter/fused_moe.py get_2stage_cfgs (default in the log line)",
)
FAILED = Rule(
    code="MP724",
    name="observed-failure",
    severity="error",
    depends="a log was read",
    what="The log holds the words by which AITER or CK says that no kernel takes a shape, or that tables are refused.",
    why="A request, or the start of the engine, failed there.",
    example='"device_gemm with the specified compilation parameters does not support this GEMM problem"',
    remedy="Run moe-preflight check on the model and split of that deployment.",
    source="csrc/ck_gemm_moe_2stages_codegen; csrc/py_itfs_cu; aiter/jit/core.py",
)
SAID = Rule(
    code="MP725",
    name="observed-message",
    severity="warning",
    depends="a log was read",
    what="The log says something about tuned tables that changes what runs: FlyDSL missing, a row discarded, a kernel not found, a "
    "path that does not exist.",
    why="The tuned row is not what runs, or not every table was read.",
    example='"ck kernel not found: moe_ck2stages_gemm1_..."',
    remedy="Read the line; moe-preflight lint names rows whose kernels do not exist.",
    source="aiter/fused_moe.py; aiter/jit/core.py; csrc/ck_gemm_moe_2stages_codegen/gemm_moe_ck2stages.cu:52",
)

RULES: tuple[Rule, ...] = (CONTRADICTED, NEVER, UNTUNED, FAILED, SAID)
