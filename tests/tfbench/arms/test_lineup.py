from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.arms.arm import TOLERANCE
from tfbench.arms.installs import choose_tolerance
from tfbench.arms.lever_table import (
    BFLOAT16_TOLERANCE,
    ISAS,
    LEVERS,
    OTHER_BACKEND,
    OTHER_RUNTIME,
    XLA_TOLERANCE,
    ValueKind,
)
from tfbench.arms.lineup import (
    PRESETS,
    WHEELS,
    ArmSpec,
    list_presets,
    make_spec,
    parse_arm,
    parse_lineup,
    read_lineup,
    read_toml,
    require_phase,
)
from tfbench.reports.ladder import find_ladder
from tfcore.errors import UsageError

WHEEL = "wheels/tensorflow_cpu-2.14.1+haswell-cp311-cp311-manylinux_2_17_x86_64.whl"


def one_line(caught: pytest.ExceptionInfo[UsageError]) -> str:
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def test_without_a_word_stock_and_tuned_are_compared() -> None:
    assert read_lineup() == read_lineup("  ") == parse_lineup("stock,tuned")


def test_another_baseline_takes_the_place_of_stock() -> None:
    baseline, tuned = read_lineup(baseline="tensorflow-cpu==2.13.1")
    assert (baseline.name, baseline.wheel) == ("baseline", "tensorflow-cpu==2.13.1")
    assert tuned == parse_arm("tuned")
    assert read_lineup(baseline="a.whl")[0].wheel == "a.whl"
    with pytest.raises(UsageError, match=r"'stok' .+ stock\?"):
        read_lineup(baseline="stok")


def test_the_baseline_is_not_given_twice() -> None:
    with pytest.raises(UsageError, match="twice"):
        read_lineup("stock,tuned", baseline="a.whl")


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("stock", ArmSpec(name="stock", wheel="stock")),
        (" control ", ArmSpec(name="control", wheel="control")),
        ("mine=tuned", ArmSpec(name="mine", wheel="tuned")),
        ("mine = tuned", ArmSpec(name="mine", wheel="tuned")),
        (
            "stock:onednn=off:intra=1",
            ArmSpec(
                name="stock-onednn-off-intra-1",
                wheel="stock",
                levers=(("onednn", "off"), ("intra", "1")),
            ),
        ),
        (
            "old=tensorflow-cpu==2.13.1",
            ArmSpec(name="old", wheel="tensorflow-cpu==2.13.1"),
        ),
        (
            "tensorflow-cpu==2.13.1",
            ArmSpec(name="tensorflow-cpu-2.13.1", wheel="tensorflow-cpu==2.13.1"),
        ),
        (
            "fast=tuned:malloc=jemalloc:env.TF_X=1",
            ArmSpec(
                name="fast", wheel="tuned", levers=(("malloc", "jemalloc"),), env=(("TF_X", "1"),)
            ),
        ),
        (WHEEL, ArmSpec(name="tensorflow_cpu-2.14.1+haswell", wheel=WHEEL)),
        (f"mine={WHEEL}", ArmSpec(name="mine", wheel=WHEEL)),
        ("mine='/a:b, c/d.whl'", ArmSpec(name="mine", wheel="/a:b, c/d.whl")),
        (
            "x=stock:env.KMP_AFFINITY='fine,compact,1,0':env.E=",
            ArmSpec(name="x", wheel="stock", env=(("KMP_AFFINITY", "fine,compact,1,0"), ("E", ""))),
        ),
        (
            'x=stock:env.A="it\'s":env.B=a=b',
            ArmSpec(name="x", wheel="stock", env=(("A", "it's"), ("B", "a=b"))),
        ),
        (
            "x=stock:runtime=openvino:intra=1",
            ArmSpec(name="x", wheel="stock", levers=(("runtime", "openvino"), ("intra", "1"))),
        ),
        (
            "half=tuned:bf16=on",
            ArmSpec(name="half", wheel="tuned", levers=(("bf16", "on"),)),
        ),
        (
            "half=tuned:bf16=on:tolerance=2e-3",
            ArmSpec(name="half", wheel="tuned", levers=(("bf16", "on"),), tolerance=2e-3),
        ),
    ],
)
def test_an_arm_is_read_as_it_is_written(text: str, spec: ArmSpec) -> None:
    assert parse_arm(text) == spec


def test_commas_are_between_arms_and_not_in_quotes() -> None:
    specs = parse_lineup("stock, tuned ,x=stock:env.A='1,2',y=stock:env.A=\"3,4\"")
    assert [spec.name for spec in specs] == ["stock", "tuned", "x", "y"]
    assert [dict(spec.env).get("A") for spec in specs] == [None, None, "1,2", "3,4"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("laddr", r"'laddr' is neither a line-up nor a wheel\. Did you mean ladder\?"),
        (
            "xla",
            r"Use one of backends, control, .*, a \.toml or \.whl file, or PACKAGE==VERSION$",
        ),
        ("stock", r"two arms, .*1\."),
        ("stock:onednn=off", r"two arms, .*1"),
        ("stock,stock", r"have the name stock"),
        ("stock,tuned,", r"arm '': the wheel is missing"),
        ("stock,x=", r"arm 'x='.*wheel"),
        ("stock,tunned", r"arm 'tunned': 'tunned' is not a wheel\. Did you mean tuned\?"),
        ("stock,wheels/x", r"'wheels/x' is not a wheel\. Use stock, tuned, control, the path"),
        ("stock,tensorflow", r"'tensorflow' .*PACKAGE==VERSION"),
        ("stock,x=tensorflow>=2", r"tensorflow>=2"),
        ("stock,x=tensorflow==2.*", r"one version"),
        ("stock,==1", r"one version"),
        ("stock,a b=tuned", r"arm 'a b=tuned'"),
        ("stock,-x=tuned", r"arm '-x=tuned'"),
        (f"stock,{'x' * 65}=tuned", r"arm 'x{65}=tuned'"),
        (f"stock,tuned:env.A={'x' * 65}", r"invalid arm name .*\. Use up to 64 letters"),
        ("stock,tuned:ondnn=off", r"unknown setting 'ondnn'\. Did you mean onednn\?"),
        ("stock,tuned:onednn", r"'onednn' has no value\. Write NAME=VALUE"),
        ("stock,tuned:env.A\nB", r"'env\.A\\nB' has no value"),
        ("stock,tuned:", r"unknown setting ''"),
        ("stock,tuned:isa=AVX3", r"isa is 'AVX3', but must be SSE41"),
        ("stock,x=stock:runtime=tvm", r"runtime is 'tvm', but must be onnxruntime or openvino"),
        ("stock,tuned:runtime=openvino", r"of tuned\. Use stock:runtime=openvino"),
        (f"stock,x={WHEEL}:runtime=openvino", r"openvino does not run the kernels of wheels/"),
        ("stock,x=stock:runtime=openvino:onednn=on", r"onednn has no effect in openvino"),
        ("stock,x=stock:xla=on:runtime=onnxruntime", r"xla has no effect in onnxruntime"),
        ("stock,x=tuned:backend=jax", r"of tuned\. Use stock:backend=jax"),
        ("stock,x=stock:backend=torch", r"backend is 'torch', but must be jax"),
        ("stock,x=stock:backend=jax:runtime=openvino", r"runtime has no effect in jax\. Remove it"),
        ("stock,x=stock:backend=jax:intra=1", r"intra has no effect in jax\. Remove it"),
        ("stock,tuned:env.PATH=/x", r"PATH cannot be set"),
        ("stock,tuned:env.=1", r"'' is not a valid name of an environment variable"),
        ("stock,tuned:intra=1:intra=1", r"intra is set twice"),
        ("stock,tuned:intra=1:env.OMP_NUM_THREADS=2", r"OMP_NUM_THREADS is set twice"),
        ("stock,x=tuned:env.A=1:env.A=2", r"A is set twice"),
        ("stock,x=tuned:env.A=a:b", r"unknown setting 'b'"),
        ("stock,tuned:tolerance=0", r"tolerance is '0', but must be a number between 0 and 1"),
        ("stock,tuned:tolerance=nan", r"tolerance is 'nan'"),
        ("stock,tuned:tolerance=wide", r"tolerance is 'wide'"),
        ("stock,tuned:tolerance=.1:tolerance=.1", r"tolerance is set twice"),
        ("stock,x=tuned:env.A='b\r", r"unclosed quote: .+b"),
        ("stock,x='a\nb.whl'", r"is not a wheel"),
        ("no-such.toml", r"no-such\.toml: cannot be read: No such file"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line(text: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_lineup(text)
    assert re.search(expected, one_line(caught))


@given(st.text())
def test_any_text_is_a_line_up_or_an_error_of_one_line(text: str) -> None:
    if text.strip().endswith(".toml"):
        return
    specs: tuple[ArmSpec, ...] = ()
    message = ""
    try:
        specs = read_lineup(text)
    except UsageError as error:
        message = str(error)
    if message:
        assert len(message.splitlines()) == 1
    else:
        assert len({spec.name for spec in specs}) == len(specs) >= 2


printable = st.text(st.characters(blacklist_categories=("C", "Z")) | st.just(" "), max_size=12)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,20}", fullmatch=True)
paths = st.tuples(st.sampled_from(["", "=", "/"]), printable).map(
    lambda pair: f"{pair[0]}{pair[1]}.whl"
)
versions = st.tuples(st.sampled_from(["tensorflow-cpu", "a"]), st.integers(0, 9)).map(
    lambda pair: f"{pair[0]}=={pair[1]}.0"
)
values: dict[str, st.SearchStrategy[str]] = {
    name: st.integers(1, 9999).map(str)
    if lever.takes == ValueKind.NUMBER
    else st.sampled_from([*lever.words])
    for name, lever in LEVERS.items()
    if name not in {OTHER_BACKEND, OTHER_RUNTIME}  # (not with every wheel and lever)
}
settings = st.fixed_dictionaries({}, optional=values)
variable_names = st.from_regex(r"[A-OQ-Z_][A-Z0-9_]{0,6}X", fullmatch=True)  # (no PYTHON…)
free = st.dictionaries(variable_names, printable)
widths = st.none() | st.floats(1e-9, 0.999).map(repr)


def text_of(spec: ArmSpec) -> str:
    """The arm as `parse_arm` reads it."""
    wide = () if spec.tolerance is None else (("tolerance", repr(spec.tolerance)),)
    settings = (*spec.settings, *wide)
    words = [quoted(spec.wheel), *(f"{name}={quoted(value)}" for name, value in settings)]
    return f"{spec.name}={':'.join(words)}"


def quoted(text: str) -> str:
    """In quotes where it needs them; a single quote stands in double ones, as in a shell.

    NAME== would begin a version, so a path does not begin with the sign bare.
    """
    if text == text.strip() and not re.search(r"^=|[,:'\"]", text):
        return text
    return "'" + text.replace("'", "'\"'\"'") + "'"


@given(
    st.builds(
        make_spec,
        name=names,
        wheel=st.sampled_from(WHEELS) | paths | versions,
        levers=settings.map(lambda pairs: pairs.items()),
        env=free.map(lambda pairs: pairs.items()),
        wide=widths,
    )
)
def test_an_arm_that_is_written_is_read_back(spec: ArmSpec) -> None:
    assert parse_arm(text_of(spec)) == spec
    first = make_spec(name=f"not-{spec.name}", wheel="stock")
    assert parse_lineup(f"{text_of(first)},{text_of(spec)}") == (first, spec)


def document(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


TOML = """
[[arm]]
name = "stock"

[[arm]]
name = "mine"
wheel = "wheels/mine.whl"
onednn = false
intra = 2
tolerance = 0.01
env = { TF_X = "a,b:c", TF_Y = 3 }
"""


def test_a_file_says_the_same_as_the_command_line(tmp_path: Path) -> None:
    stock, mine = read_lineup(str(document(tmp_path, TOML)))
    assert stock == parse_arm("stock")
    assert mine == ArmSpec(
        name="mine",
        wheel=str(tmp_path / "wheels/mine.whl"),
        levers=(("onednn", "off"), ("intra", "2")),
        env=(("TF_X", "a,b:c"), ("TF_Y", "3")),
        tolerance=0.01,
    )
    assert mine.settings == (
        *(("onednn", "off"), ("intra", "2")),
        *(("env.TF_X", "a,b:c"), ("env.TF_Y", "3")),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", r"mine\.toml.* two arms, .*0"),
        ("[[arm]]\nname='stock'", r"got 1"),
        ("arm = 1", r"mine\.toml: .*\[\[arm\]\]"),
        ("[arm]\nname='stock'", r"\[\[arm\]\] tables"),
        ("[[arms]]\nname='stock'", r"mine\.toml: .*'arms'\. Did you mean arm\?"),
        ("[[arm]\n", r"mine\.toml: .+at line 1"),
        ("[[arm]]\nwheel='stock'", r"arm 1 \('without a name'\): name"),
        ("[[arm]]\nname=1", r"arm 1 \(1\): name is 1"),
        ("[[arm]]\nname='my arm'\nwheel='stock'", r"arm 1 \('my arm'\): invalid arm name 'my arm'"),
        ('[[arm]]\nname="a\\nb"', r"arm 1 \('a\\nb'\)"),
        ("[[arm]]\nname='a'", r"'a' is not a wheel"),
        ("[[arm]]\nname='stock'\nondnn='on'", r"'ondnn'\. Did you mean onednn\?"),
        ("[[arm]]\nname='stock'\nonednn='auto'", r"onednn is 'auto'"),
        ("[[arm]]\nname='stock'\nintra=true", r"intra is 'on'"),
        ("[[arm]]\nname='stock'\nintra=[1]", r"intra is \[1\]"),
        ("[[arm]]\nname='stock'\nenv='A=1'", r"write env as"),
        ("[[arm]]\nname='stock'\nenv={A=true}", r"A is True"),
        ("[[arm]]\nname='stock'\nenv={PATH='x'}", r"PATH cannot be set"),
        ("[[arm]]\nname='stock'\ntolerance=nan", r"tolerance is 'nan'"),
        ("[[arm]]\nname='stock'\n[[arm]]\nname='stock'", r"have the name stock"),
    ],
)
def test_a_file_that_cannot_be_read_names_the_arm(tmp_path: Path, text: str, expected: str) -> None:
    path = document(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read_toml(path)
    assert re.search(expected, one_line(caught))
    assert str(path) in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"mine\.toml"):
        read_toml(path)
    with pytest.raises(UsageError, match="Is a directory"):
        read_toml(tmp_path)


def test_every_preset_can_be_read_and_begins_with_stock() -> None:
    assert list_presets() == (
        "backends",
        "control",
        "ladder",
        "levers",
        "mallocs",
        "peers",
        "runtimes",
    )
    for name in list_presets():
        specs = read_lineup(name)
        assert specs == read_toml(PRESETS / f"{name}.toml")
        assert specs[0].wheel == "stock"


def test_the_ladder_has_both_wheels_on_each_rung_and_begins_at_the_lowest() -> None:
    ladder = read_lineup("ladder")
    actual = find_ladder([spec.name for spec in ladder])
    assert actual is not None
    assert actual.wheels == ("stock", "tuned")
    assert [(spec.wheel, spec.name) for spec in ladder] == [
        (wheel, actual.find_arm(rung, wheel)) for rung in actual.rungs for wheel in actual.wheels
    ]
    stock = [spec.levers for spec in ladder if spec.wheel == "stock"]
    assert [*map(set, stock)] == [
        {("onednn", "off"), ("contraction", "off")},
        {("onednn", "off")},
        {("onednn", "on")},
    ]
    assert stock == [spec.levers for spec in ladder if spec.wheel == "tuned"]


def test_levers_are_tried_one_by_one_on_the_stock_wheel() -> None:
    runtimes = (*read_lineup("runtimes"), *read_lineup("backends"))
    alone = [spec for spec in runtimes if spec.runtime]
    first, *other_specs = (*read_lineup("levers"), *read_lineup("mallocs")[1:], *alone)
    assert first == parse_arm("stock")
    assert all(spec.wheel == "stock" and len(spec.levers) == 1 for spec in other_specs)
    assert {name for spec in other_specs for name, _ in spec.levers} == set(LEVERS)


def test_other_runtimes_obey_threads_and_allocators() -> None:
    spec = parse_arm("x=tensorflow-cpu==2.20.0:runtime=openvino:intra=1:malloc=tcmalloc")
    assert spec.runtime == "openvino"
    assert parse_arm("stock").runtime == ""


@pytest.mark.parametrize(
    ("name", "phase", "message"),
    [
        (
            "runtimes",
            "train",
            r"arm ort: onnxruntime is only compared in infer\. Use .* --phase infer",
        ),
        ("runtimes", "", "arm ort: onnxruntime is only compared in infer"),
        (
            "backends",
            "fit",
            r"jax is only compared in train and infer\. Use .* --phase train or infer",
        ),
        ("backends", "", "arm jax: jax is only compared in train and infer"),
    ],
)
def test_other_runtimes_are_not_compared_in_every_phase(
    name: str, phase: str, message: str
) -> None:
    require_phase(read_lineup("peers"), phase)
    require_phase(read_lineup("runtimes"), "infer")
    require_phase(read_lineup("backends"), "infer")
    require_phase(read_lineup("backends"), "train")
    with pytest.raises(UsageError, match=message):
        require_phase(read_lineup(name), phase)


def test_the_control_tells_compiler_and_flags_apart() -> None:
    assert [spec.wheel for spec in read_lineup("control")] == ["stock", "control", "tuned"]


def test_tolerance_is_the_levers_own() -> None:
    widths = {spec.name: choose_tolerance(spec, None) for spec in read_lineup("levers")}
    assert widths.pop("bf16") == BFLOAT16_TOLERANCE
    assert widths.pop("xla") == XLA_TOLERANCE
    assert set(widths.values()) == {TOLERANCE}


def test_names_of_instructions_are_onednns() -> None:
    assert {"AVX2", "AVX512_CORE"} <= set(ISAS)
    assert "ONEDNN_MAX_CPU_ISA" in LEVERS["isa"].variables
