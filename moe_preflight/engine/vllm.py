"""vLLM: a model and a deployment -> what every rank asks of AITER, or the error vLLM stops with. Pure; no vLLM needed."""

from __future__ import annotations

from dataclasses import replace

from moe_preflight.engine import architecture, checks, environment, linears, parallel, router, schemes, switches
from moe_preflight.engine.call import rank_problem, silent_notes
from moe_preflight.engine.choice import Choice, Question, Sizes, refused
from moe_preflight.engine.experts import Ask
from moe_preflight.engine.facts.vllm_blocks import Block
from moe_preflight.engine.facts.vllm_releases import Release, resolve
from moe_preflight.engine.fusion import fused_shared
from moe_preflight.engine.plan import Deployment, EnginePlan, LayerPlan, Note, Refusal
from moe_preflight.model.moe import ExpertLayer, MoEModel


def plan(model: MoEModel, deployment: Deployment) -> EnginePlan:
    """The plan of one deployment on vLLM. Raises UsageError for a version, variable or backend name that makes no sense."""
    resolved = resolve(deployment.engine_version)
    release = resolved.release
    env = environment.read(deployment.env)
    checks.usage(deployment, release)
    split = parallel.split(deployment)
    found = architecture.find(model, release)
    notes = list(env.notes)
    if resolved.why:
        code = "engine-version-nearest" if resolved.exact else "engine-version-unverified"
        notes.append(Note(code, resolved.why, "moe_preflight/engine/facts/vllm_releases.py"))
    about = (checks.vision_note(model, found.file, deployment), checks.pipeline_note(model, deployment))
    notes += [note for note in about if note is not None]
    refusals = checks.config(model, deployment, found, release)
    error = _shares(env, model, deployment)[1]
    if error:
        why = "VLLM_PP_LAYER_PARTITION does not fit this model and pipeline size."
        refusals.append(Refusal("model", error, why, "Correct or unset it.", "vllm/distributed/utils.py:216 (0.33.0)"))
    layers: list[LayerPlan] = []
    for layer in model.layers:
        planned, of_model = _layer(model, layer, found.block, deployment, split, env, release)
        if resolved.older:
            planned = replace(planned, router=replace(planned.router, passes=()))
        layers.append(planned)
        refusals += [r for r in of_model if r not in refusals]
    return EnginePlan(
        model=model,
        deployment=deployment,
        layers=tuple(layers),
        refusals=tuple(refusals),
        confidence="read" if resolved.exact else "unverified",
        facts_version=release.version,
        aiter_pin=release.aiter_pin,
        ep_size=split.ep_size,
        notes=tuple(notes),
    )


def _layer(
    model: MoEModel,
    layer: ExpertLayer,
    block: Block,
    deployment: Deployment,
    split: parallel.Split,
    env: environment.Environment,
    release: Release,
) -> tuple[LayerPlan, list[Refusal]]:
    activation = checks.activation(layer, block)
    width = checks.passed_width(model, layer, block, deployment)
    plain = Ask(deployment.gpu.gfx, env, release, split, activation, "")
    shared = fused_shared(model, layer, block, plain)
    if block.name == "minimax_m3" and shared.slots and plain.gfx == "gfx950" and plain.aiter_moe:
        # The shared expert rides in AITER's grouped kernel with one group (minimax_m3/amd/model.py:463).
        block = block._replace(groups="one", scale="router")
    logits = router.logits_dtype(block, checks.text_config(model), model.model_type, model.dtype)
    route = router.routing(layer, block, logits, aiter_moe=plain.aiter_moe, fused_shared=shared.slots)
    ask = Ask(
        gfx=deployment.gpu.gfx,
        env=env,
        release=release,
        split=split,
        activation=activation,
        method=router.advertised(route, release, env.text("VLLM_MOE_ROUTING_SIMULATION_STRATEGY")),
        lora=deployment.lora,
        hash_routed=layer.hash_routed,
        hidden=layer.model_dim,
        backend=deployment.moe_backend,
        model_type=model.model_type,
    )
    question = Question(
        layer, ask, Sizes.plain(layer.model_dim, split.inter_dim(width)), model.dtype, width, block.name, max(1, deployment.tp)
    )
    choice: Choice = _spread(question, schemes.choose(question))
    switched = switches.refusals(model, layer, block, ask, deployment)
    refusals = [*checks.layer(layer, width, split, deployment), *(r for r in switched if r.stage == "layer")]
    balancing = schemes.unbalanced(choice, question) if choice.backend.name else None
    refusals += [stop for stop in (balancing, choice.refusal) if stop]
    plan_ = LayerPlan(
        layer=layer,
        backend=choice.backend,
        problem=rank_problem(question, choice, deployment, shared.slots),
        router=router.call(
            route,
            release,
            deployment.gpu.gfx,
            aiter_moe=ask.aiter_moe,
            simulated=env.text("VLLM_MOE_ROUTING_SIMULATION_STRATEGY"),
        ),
        zero_filled_by=choice.zero_filled_by,
        refusals=tuple(refusals),
        notes=(*choice.notes, *shared.notes, *silent_notes(question, choice, deployment)),
        quant_method=choice.method or None,
        routing_method=ask.method,
        layers_per_rank=parallel.most_on_one_rank(
            layer.layers, layer.count, model.num_layers, max(1, deployment.pp), _shares(env, model, deployment)[0]
        ),
    )
    stops = checks.model(model, layer, block, deployment, release)
    stops += [r for r in switched if r.stage == "model"]
    return plan_, stops + linears.refusals(model, layer, deployment, fused=shared.slots > 0)


def _spread(q: Question, choice: Choice) -> Choice:
    """``choice`` with the hidden size that an all2all kernel rounds up, before the method's own rounding (of which each unit
    divides every size the kernels have)."""
    hidden = q.ask.split.hidden_dim(q.sizes.hidden, 4 if q.dtype == "fp32" else 2)
    if hidden is None and choice.refusal is None:
        most = parallel.LOW_LATENCY_SIZES[-1]
        text = f"Hidden Size {q.sizes.hidden} is greater than the maximum supported hidden size {most}"
        why = f"{q.ask.split.all2all} has kernels for hidden sizes up to {most} only."
        where = "vllm/model_executor/layers/fused_moe/prepare_finalize/deepep_ll.py:76 (0.33.0)"
        return refused(choice.method, choice.sizes, Refusal("layer", text, why, "Use another --all2all-backend.", where))
    if hidden is None or hidden <= choice.sizes.hidden_padded:
        return choice
    return choice._replace(sizes=choice.sizes._replace(hidden_padded=hidden))


def _shares(env: environment.Environment, model: MoEModel, deployment: Deployment) -> tuple[tuple[int, ...] | None, str]:
    """The pipeline partition the environment gives, if any, and vLLM's objection to it."""
    text = env.text("VLLM_PP_LAYER_PARTITION")
    if not text or deployment.pp <= 1:
        return None, ""
    return parallel.given_partition(text, model.num_layers, deployment.pp)
