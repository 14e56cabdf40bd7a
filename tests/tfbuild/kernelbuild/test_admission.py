from __future__ import annotations

from pathlib import Path

import pytest

from tfbuild.kernelbuild.admission import (
    RefusedKernel,
    UnitVerdict,
    _check_abi,
    _find_static_defect,
    _strip_arguments,
    build_probe_env,
    find_borrowed_names,
    find_declared_names,
    parse_verdict,
    require_tested,
)
from tfcore.comparisons.kernels import TypedOp
from tfcore.cpus.cpu import MASK
from tfcore.errors import KernelError

# Names as nm shows them for libraries of TensorFlow 2.14.1's kernel sources (some shortened).
LENT = """\
tensorflow::functor::GatherNdSlice<Eigen::ThreadPoolDevice, float, int, 2>::operator()(E::D const&)
tensorflow::functor::SetZeroFunctor<Eigen::ThreadPoolDevice, bool>::operator()(E::TensorMap<bool>)
tensorflow::GetCpuCastFromBool(tensorflow::DataType)
tensorflow::BinaryOpShared::BinaryOpState::BinaryOpState(tensorflow::OpKernelContext*)
vtable for tensorflow::BinaryOpShared
non-virtual thunk to tensorflow::BinaryOpShared::~BinaryOpShared()
void tensorflow::HandleStridedSliceCase<Eigen::ThreadPoolDevice, tsl::tstring, 1>(absl::Span<long>)
tensorflow::MaybeForwardRefInputToRefOutput(tensorflow::OpKernelContext*, int, int)
tensorflow::KernelName[abi:cxx11](int)
"""
NOT_LENT = """\
tensorflow::OpKernelContext::input(int) const
tensorflow::Tensor::CheckTypeAndIsAligned(tensorflow::DataType) const
tsl::strings::StrCat[abi:cxx11](tsl::strings::AlphaNum const&, tsl::strings::AlphaNum const&)
E::ThreadPoolDevice const& tensorflow::OpKernelContext::eigen_device<E::ThreadPoolDevice>() const
vtable for tensorflow::kernel_factory::OpKernelRegistrar::PtrOpKernelFactory
tensorflow::kernel_factory::OpKernelRegistrar::InitInternal(tensorflow::BinaryOpShared const*)
typeinfo for tensorflow::OpKernel
tensorflow::DEVICE_CPU
tensorflow::OpKernel::TraceString[abi:cxx11](tensorflow::OpKernelContext const&, bool) const
tensorflow::Shard(int, tsl::thread::ThreadPool*, long, std::function<void (long, long)>)
tensorflow::Tensor::SetUnimplementedError()
absl::lts_20230125::Status::Status(absl::lts_20230125::StatusCode, std::basic_string_view<char>)
std::__cxx11::basic_string<char, std::char_traits<char> >::compare(char const*) const
__gmon_start__
"""

KERNEL_HEADERS = {
    "cast_op_impl.h": """
// class Tensor is what these functions cast.
CastFunctorType GetCpuCastFromBool(DataType dst_dtype);
std::string KernelName(int number);
""",
    "cwise_ops_common.h": """
class BinaryOpShared : public OpKernel {
 protected:
  void SetUnimplementedError(OpKernelContext* ctx);
  struct BinaryOpState { explicit BinaryOpState(OpKernelContext* ctx); };
};
void SetUnimplementedError(OpKernelContext* ctx);
""",
    "data/strided_slice_op.h": """
template <typename Device, typename T, int NDIM>
void HandleStridedSliceCase(OpKernelContext* context,
                            const gtl::ArraySlice<int64_t>& begin);
""",
    "training_op_helpers.h": """
void MaybeForwardRefInputToRefOutput(OpKernelContext* ctx, int input,
                                     int output);
class Tensor;
""",
}
OTHER_HEADERS = {
    "framework/op_kernel.h": "class OpKernelContext { };\nclass TF_EXPORT OpKernel { };\n",
    "framework/tensor.h": "class Tensor {\n public:\n  DataType dtype() const;\n};\n",
    "util/work_sharder.h": "void Shard(int max_parallelism, thread::ThreadPool* workers);\n",
}


@pytest.fixture(scope="module", name="tree")
def staged_headers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("staged")
    headers = {f"kernels/{name}": text for name, text in KERNEL_HEADERS.items()} | OTHER_HEADERS
    for name, text in headers.items():
        path = root / "tensorflow" / "core" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"namespace tensorflow {{\n{text}}}\n")
    return root


def test_headers_say_what_kernels_declare(tree: Path) -> None:
    own_names, other_names = find_declared_names(tree)
    assert {
        *("GetCpuCastFromBool", "KernelName", "BinaryOpShared", "BinaryOpState"),
        *("SetUnimplementedError", "HandleStridedSliceCase", "MaybeForwardRefInputToRefOutput"),
    } == own_names
    assert {"OpKernelContext", "OpKernel", "Tensor", "Shard"} <= other_names


@pytest.mark.parametrize("name", LENT.splitlines())
def test_what_kernel_sources_define_is_borrowed(tree: Path, name: str) -> None:
    assert find_borrowed_names([name], *find_declared_names(tree)) == (name,)


@pytest.mark.parametrize("name", NOT_LENT.splitlines())
def test_what_the_framework_defines_is_not_borrowed(tree: Path, name: str) -> None:
    assert find_borrowed_names([name], *find_declared_names(tree)) == ()


def test_a_name_that_both_declare_is_not_the_kernels() -> None:
    both = frozenset({"Shape"})
    assert find_borrowed_names(["tensorflow::Shape::size()"], both, both) == ()


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("tensorflow::f(int)", "tensorflow::f"),
        ("tensorflow::A<int, B<(C)1> >::f<2>(D<3>) const", "tensorflow::A::f"),
        ("std::vector<int> const& tensorflow::f<int>(int)", "tensorflow::f"),
        ("tensorflow::A::operator()(int) const", "tensorflow::A::operator"),
        ("tensorflow::A::operator->() const", "tensorflow::A::operator"),
        ("bool tensorflow::operator><int>(tensorflow::A, tensorflow::B)", "tensorflow::operator"),
        ("std::ostream& tensorflow::operator<<(std::ostream&, x::A)", "tensorflow::operator"),
        ("tensorflow::A::operator bool() const", "tensorflow::A::operator"),
        ("tensorflow::f[abi:cxx11](int)", "tensorflow::f"),
        ("guard variable for tensorflow::f()::x", "tensorflow::f::x"),
        ("malloc", "malloc"),
    ],
)
def test_names_are_read_without_what_is_between_brackets(name: str, plain: str) -> None:
    assert _strip_arguments(name) == plain


@pytest.mark.parametrize(
    ("taken", "state", "reason"),
    [
        ((), (), ""),
        (("tensorflow::Mine()",), (), "it uses tensorflow::Mine() of the stock library"),
        ((), ("guard variable for x", "Eigen::internal::manage_caching_sizes(a)::m"), ""),
        ((), ("absl::lts_1::raw_hash::Policy::x",), ""),
        (
            (),
            ("guard variable for x", "tensorflow::registry"),
            "it would share the state tensorflow::registry with the stock library",
        ),
    ],
)
def test_the_static_reasons(taken: tuple[str, ...], state: tuple[str, ...], reason: str) -> None:
    assert _find_static_defect(taken, state, frozenset({"Mine"}), frozenset()) == reason


def test_an_answer_of_the_probe_becomes_a_verdict() -> None:
    row: dict[str, object] = {
        "registrations": [["Tanh", "T=1"]],
        "refused": [["Tanh", "T=19", "far away"]],
        "cases": 202,
        "ulps": {"Tanh": 2.5},
    }
    verdict = parse_verdict("tanh", row, ("x",))
    assert verdict == UnitVerdict(
        unit="tanh",
        registrations=(TypedOp(op="Tanh", types="T=1"),),
        refused=(RefusedKernel(op="Tanh", types="T=19", reason="far away"),),
        cases=202,
        ulps={"Tanh": 2.5},
        state=("x",),
    )
    assert verdict.admitted
    assert parse_verdict("tanh", {"reason": "it crashed"}, ()).reason == "it crashed"


KILLED = parse_verdict("tanh", {"lost": "its worker was ended by SIGKILL"}, ())


def test_a_unit_that_was_lost_with_the_probe_has_no_verdict() -> None:
    assert KILLED.lost
    assert not KILLED.admitted
    assert not UnitVerdict(unit="tanh", reason="SIGABRT").lost


def test_a_lost_unit_is_told_with_the_end_of_the_probe_and_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "probe.log").write_text("tested: exp\nno memory left\ntested: log\n")
    good = UnitVerdict(unit="exp")
    with pytest.raises(KernelError) as caught:
        require_tested([good, KILLED], tmp_path)
    text = str(caught.value)
    for part in ("tanh", "SIGKILL", "probe.log", "\nno memory left\n", "memory runs out"):
        assert part in text
    assert "tested: " not in text
    assert "taskset" in text
    assert "--without tanh" in text
    require_tested([good, UnitVerdict(unit="tanh", reason="it crashed")], tmp_path)


def test_a_lost_unit_of_a_probe_that_said_nothing_has_its_cause(tmp_path: Path) -> None:
    illegal = parse_verdict("tanh", {"lost": "its worker was ended by SIGILL"}, ())
    with pytest.raises(KernelError, match=r"SIGILL.*--arch native"):
        require_tested([illegal], tmp_path)


def test_the_stock_wheels_abi_must_be_among_the_options() -> None:
    facts = {"compile_flags": ["-DA=1", "--std=c++17", "-DEIGEN_MAX_ALIGN_BYTES=64"]}
    _check_abi(facts, ("-O2", "-DA=1", "-DEIGEN_MAX_ALIGN_BYTES=64"))
    with pytest.raises(KernelError, match="-DEIGEN_MAX_ALIGN_BYTES=64"):
        _check_abi(facts, ("-DA=1", "-DEIGEN_MAX_ALIGN_BYTES=32"))


def test_the_probe_sees_nothing_of_the_callers_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """But for the mask of CPU features, which it must know."""
    monkeypatch.delenv(MASK, raising=False)
    before = build_probe_env()
    for name in (*before, "TF_XLA_FLAGS", "OMP_NUM_THREADS", "PYTHONSTARTUP"):
        monkeypatch.setenv(name, "the caller's")
    assert build_probe_env() == before
    assert (Path(before["PYTHONPATH"]) / "tfbuild" / "probe").is_dir()
