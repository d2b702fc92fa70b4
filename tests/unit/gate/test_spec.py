"""A gate file is read strictly: what it may say, and the line for what it may not."""

from __future__ import annotations

import pytest

from moe_preflight.errors import SettingsError
from moe_preflight.gate.spec import Require
from moe_preflight.hardware import GPUS
from moe_preflight.settings import Split
from tests.unit.gate.gates import DEPLOYMENT, SHAPE, gate


def test_everything_a_deployment_may_say() -> None:
    found = gate(
        """
        fail_on = "warning"
        baseline = "b.json"
        [require]
        accepted = true
        max_padding_pct = 12.5
        [defaults]
        gpus = ["mi300x", { gfx = "gfx942", cu = 80 }]
        require = { accepted = "unless-unknown" }
        [[deployment]]
        name = "k2"
        model = "IFM/K2"
        revision = "abc"
        tp = [8, 4]
        dp = 2
        pp = 2
        ep = [false, true]
        engine_version = "0.31.0"
        engine_env = { VLLM_X = "1", AITER_Y = "2" }
        moe-backend = "triton"
        all2all_backend = "naive"
        enable_lora = true
        aiter = { tree = "aiter", version = "0.1.20.post1" }
        tokens = [1, "4-64"]
        max_num_batched_tokens = 4096
        offline = true
        checkpoint = true
        flydsl = false
        multi_arch = true
        redundant_experts = 3
        require = { on_aiter = true, min_tuned_decode_pct = 80 }
        """
    )
    assert (found.fail_on, found.baseline, found.select, found.only) == ("warning", "b.json", None, False)
    (held,) = found.held
    r = held.request
    assert (held.name, held.model, r.models, r.shapes, r.revision) == ("k2", "IFM/K2", ("IFM/K2",), (), "abc")
    assert r.splits == tuple(
        Split(tp=tp, dp=2, pp=2, ep=ep, redundant_experts=3) for tp in (8, 4) for ep in (False, True)
    )  # fmt: skip
    assert [(g.name, g.cu_num) for g in r.gpus] == [("mi300x", 304), ("gfx942:80", 80)]
    assert (r.engine, r.engine_version, r.moe_backend, r.all2all, r.lora) == ("vllm", "0.31.0", "triton", "naive", True)
    assert (r.engine_env, r.aiter_env) == ({"VLLM_X": "1"}, {"AITER_Y": "2"})
    assert (r.aiter, r.aiter_version) == ("dir/aiter", "0.1.20.post1")
    assert (r.tokens, r.max_num_batched_tokens, r.offline, r.checkpoint) == ("1,4-64", 4096, True, True)
    assert (r.flydsl, r.multi_arch, r.tuned) == (False, True, True)
    assert held.require == Require("unless-unknown", True, 80.0, 12.5)


def test_what_the_command_line_says_is_for_deployments_that_say_nothing() -> None:
    says = {"a": "", "b": "aiter='own'", "c": "aiter={version='0.1.20'}", "d": "aiter='auto'"}
    text = "".join(f"{DEPLOYMENT}name='{name}'\n{words}\n" for name, words in says.items())
    found = gate(text, aiter="given", offline=True)
    assert [h.request.aiter for h in found.held] == ["given", "dir/own", "given", "auto"]
    assert all(h.request.offline for h in found.held)
    assert found.held[2].request.aiter_version == "0.1.20"


def test_the_name_is_the_model_and_names_differ() -> None:
    assert gate("[[deployment]]\nmodel='a/b'\ngpus='mi300x'").held[0].name == "a/b"
    with pytest.raises(SettingsError, match=r"deployment\[1\]: a second deployment called"):
        gate(DEPLOYMENT * 2)


def test_sglang_takes_a_number() -> None:
    (held,) = gate(f"{DEPLOYMENT}engine='sglang'\ntp=8\nep=[1, 8]").held
    assert [(s.ep, s.ep_size) for s in held.request.splits] == [(False, 1), (True, 8)]
    with pytest.raises(SettingsError, match=r"deployment\[0\].ep: vllm takes no number"):
        gate(f"{DEPLOYMENT}ep=8")
    with_true = gate(f"{DEPLOYMENT}engine='sglang'\ntp=8\nep=[true, 1]").held[0]
    assert len(with_true.request.splits) == 2


def test_codes_their_starts_and_names() -> None:
    found = gate(f"select=['MP1', 'tuned-miss']\n[severity]\nMP30='info'\nMP301='error'\nMP4='off'\n{DEPLOYMENT}")
    assert found.select == ("MP1", "MP301")
    assert found.severity is not None
    assert (found.severity["MP301"], found.severity["MP302"], found.severity["MP401"]) == ("error", "info", "off")
    assert "MP101" not in found.severity
    assert gate(f"select=[]\n{DEPLOYMENT}").select == ()
    assert not any(c.startswith("MP80") for c in gate(f"[severity]\nMP8='warning'\n{DEPLOYMENT}").severity or ())


def test_filters_of_an_ignore() -> None:
    words = "code='MP301'\nreason=' why '\nuntil=2027-01-31\ndeployment='a'\ngpu='MI300X'\ntp=[8,4]\nep=true\nlayer='main'"
    (entry,) = gate(f"{DEPLOYMENT}name='a'\n[[ignore]]\n{words}").ignores
    assert (entry.code, entry.reason, entry.until, entry.where) == ("MP301", "why", "2027-01-31", "g.toml: ignore[0]")
    assert (entry.deployment, entry.gpu, entry.tp, entry.ep, entry.layer) == (("a",), ("mi300x",), (8, 4), (True,), ("main",))
    assert GPUS["mi300x"].name in entry.gpu


IGNORE = f"{DEPLOYMENT}name='a'\n[[ignore]]\n"
BAD = {
    # where, and what helps
    "fail_onn = 'error'": "g.toml: fail_onn: unknown key. Did you mean fail_on?",
    "fail_on = 'warn'": "g.toml: fail_on: 'warn' is unknown. Did you mean warning?",
    "fail_on = true": "g.toml: fail_on: true (a boolean) is not what stands here.",
    "deployment = []\nseverity = 1": "g.toml: severity: 1 (an integer)",
    "[deployment]\nmodel='a/b'": "[[deployment]], with two brackets",
    "deployment = [1]": "g.toml: deployment[0]: 1 (an integer)",
    "[[deployment]]\ngpus='mi300x'": "needs a model or a shape",
    f"{DEPLOYMENT}model='a/b'": "needs a model or a shape, one of them",
    "[[deployment]]\nmodel='a/b'": "deployment[0].gpus: missing",
    "[[deployment]]\nmodel='-'\ngpus='mi300x'": "does not read stdin",
    "[[deployment]]\nmodel=' '\ngpus='mi300x'": "deployment[0].model: empty",
    f"{DEPLOYMENT}tpp=8": "deployment[0].tpp: unknown key. Did you mean tp?",
    f"{DEPLOYMENT}tp=true": "deployment[0].tp: true (a boolean)",
    f"{DEPLOYMENT}tp=8.0": "deployment[0].tp: 8.0 (a float)",
    f"{DEPLOYMENT}tp='8'": "deployment[0].tp: '8' (a string)",
    f"{DEPLOYMENT}tp=[8, '4']": "deployment[0].tp[1]: '4' (a string)",
    f"{DEPLOYMENT}tp=0": "deployment[0].tp: 0 is out of range",
    f"{DEPLOYMENT}tp={1 << 70}": "a number of more than 64 bits is out of range",
    f"{DEPLOYMENT}tp=[]": "an empty array asks for nothing",
    f"{DEPLOYMENT}tp=8\ndp=1\nmoe_backend=''": "deployment[0].moe_backend: empty",
    f"{DEPLOYMENT}moe_backend='a'\nmoe-backend='b'": "given twice, with - and with _",
    f"{DEPLOYMENT}ep='yes'": "deployment[0].ep: 'yes' (a string)",
    f"{DEPLOYMENT}engine='vlm'": "'vlm' is unknown. Did you mean vllm?",
    f"{DEPLOYMENT}engine_version=0.33": "0.33 (a float)",
    f"{DEPLOYMENT}engine_env=['A=1']": "engine_env: an array is not what stands here",
    f"{DEPLOYMENT}engine_env={{A=1}}": "engine_env.A: 1 (an integer)",
    f"{DEPLOYMENT}engine_env={{'A B'='1'}}": "is no name of a variable",
    f"{DEPLOYMENT}tokens='sometimes'": "deployment[0].tokens: ",
    f"{DEPLOYMENT}tokens=[1, '64-4']": "a range ends before it starts",
    f"{DEPLOYMENT}tokens=[1, 2.5]": "deployment[0].tokens[1]: 2.5 (a float)",
    f"{DEPLOYMENT}max_num_batched_tokens=0": "out of range",
    f"{DEPLOYMENT}revision='x'": "a shape has no revision",
    f"{DEPLOYMENT}aiter={{tre='x'}}": "aiter.tre: unknown key. Did you mean tree?",
    f"{DEPLOYMENT}aiter=7": 'Expected "auto", a folder or wheel',
    f"{DEPLOYMENT}require={{accept=true}}": "require.accept: unknown key. Did you mean accepted?",
    f"{DEPLOYMENT}require={{accepted='yes'}}": "require.accepted: 'yes' is unknown",
    f"{DEPLOYMENT}require={{min_tuned_decode_pct=101}}": "Expected percent, 0 to 100",
    f"{DEPLOYMENT}require={{max_padding_pct=nan}}": "nan is out of range",
    f"{DEPLOYMENT}require={{max_padding_pct=true}}": "true (a boolean)",
    f"{DEPLOYMENT}tuned=false\nrequire={{min_tuned_decode_pct=1}}": "tuned = false looks at no table",
    "[[deployment]]\nmodel='a/b'\ngpus='mi300'": "deployment[0].gpus: mi300: unknown GPU",
    "[[deployment]]\nmodel='a/b'\ngpus={gfx='gfx942'}": "gfx and cu go together",
    "[[deployment]]\nmodel='a/b'\ngpus='mi300x'\nquant='fp8_block'": "quant: goes with shape",
    f"select='MP30I'\n{DEPLOYMENT}": "select[0]: no rule has the code or name 'MP30I'. Did you mean MP30",
    f"select='MP'\n{DEPLOYMENT}": "no rule has the code or name 'MP'",
    f"select='tuned-mis'\n{DEPLOYMENT}": "Did you mean tuned-miss?",
    f"[severity]\nMP301='fatal'\n{DEPLOYMENT}": "severity.MP301: 'fatal' is unknown. Expected error, warning, info, off",
    f"[severity]\nMP3O1='info'\n{DEPLOYMENT}": "severity.MP3O1: no rule has the code",
    f"[severity]\nMP801='info'\n{DEPLOYMENT}": "findings about the gate file keep their severity",
    f"[severity]\nMP813='off'\n{DEPLOYMENT}": "a requirement cannot be switched off",
    f"[severity]\nMP813='info'\n{DEPLOYMENT}": "a requirement cannot be switched off, and is no mere info",
    f"[severity]\nMP8='info'\n{DEPLOYMENT}": "severity.MP8: a requirement cannot be switched off",
    f"[severity]\nMP301='never'\n{DEPLOYMENT}": "'never' is unknown. Expected error, warning, info, off",
    f"[severity]\nMP301='info'\ntuned-miss='off'\n{DEPLOYMENT}": "MP301 is given twice",
    f"{IGNORE}reason='r'\nuntil=2027-01-31": "ignore[0].code: missing",
    f"{IGNORE}code='MP301'\nuntil=2027-01-31": "ignore[0].reason: missing",
    f"{IGNORE}code='MP301'\nreason=' '\nuntil=2027-01-31": "ignore[0].reason: empty",
    f"{IGNORE}code='MP301'\nreason='r'": "ignore[0].until: missing",
    f"{IGNORE}code='MP301'\nreason='r'\nuntil='2027-01-31'": "Expected a date without quotes",
    f"{IGNORE}code='MP301'\nreason='r'\nuntil=2027-01-31T00:00:00": "(a date and time)",
    f"{IGNORE}code='MP801'\nreason='r'\nuntil=2027-01-31": "cannot be ignored",
    f"{IGNORE}code='MP301'\nreason='r'\nuntil=2027-01-31\ndeployment='b'": "ignore[0].deployment: 'b' is no deployment of this gate",
    f"{IGNORE}code='MP301'\nreason='r'\nuntil=2027-01-31\ntps=8": "ignore[0].tps: unknown key. Did you mean tp?",
}


@pytest.mark.parametrize(("text", "said"), BAD.items(), ids=[t.replace("\n", " ")[-60:] for t in BAD])
def test_a_wrong_word_is_one_line_that_helps(text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        gate(text)
    line = str(caught.value)
    assert said in line
    assert line.startswith("g.toml: ")
    assert "\n" not in line
    assert line.isascii()


def test_names_with_control_characters_stay_on_their_line() -> None:
    with pytest.raises(SettingsError) as caught:
        gate('"\\u001b[31m\\n" = 1')
    assert str(caught.value).isprintable()


def test_a_gate_is_not_endless() -> None:
    many = ",".join(str(i) for i in range(1, 300))
    with pytest.raises(SettingsError, match="splits"):
        gate(f"{DEPLOYMENT}tp=[{many}]\ndp=[{many}]")
    with pytest.raises(SettingsError, match=r"more than 10,000"):
        gate("".join(f"[[deployment]]\n{SHAPE}name='{i}'\ntp=[{many}]\ndp=[1,2]\n" for i in range(20)))
