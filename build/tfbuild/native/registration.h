// Included before every kernel source (-include): makes each kernel that the source registers a
// tuned one. TensorFlow keeps all registrations and takes the one with the highest priority
// (FindKernelRegistration in tensorflow/core/framework/op_kernel.cc); equal priorities are an
// error, so every CPU kernel is registered one above the stock one.

#ifndef TENSORWRIGHT_REGISTRATION_H_
#define TENSORWRIGHT_REGISTRATION_H_

// Kernel sources define this before their first include; op_kernel.h must see it too.
#ifndef EIGEN_USE_THREADS
#define EIGEN_USE_THREADS
#include "tensorflow/core/framework/op_kernel.h"
#undef EIGEN_USE_THREADS
#else
#include "tensorflow/core/framework/op_kernel.h"
#endif

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "tensorflow/core/framework/kernel_def.pb.h"
#include "tensorwright/counter.h"
#include "tensorwright/selection.h"

// A newer C library gives these functions a second version. The first one is in every library since
// GCC 4.6 and glibc 2.2.5 (2.17 on aarch64), and is what the stock wheel was linked with: so the tuned
// library loads wherever the stock ones do, and computes with the same scalar functions.
#if defined(__GLIBCXX__) && (defined(__x86_64__) || defined(__aarch64__))
#ifdef __x86_64__
#define TENSORWRIGHT_FIRST_GLIBC "GLIBC_2.2.5"
#else
#define TENSORWRIGHT_FIRST_GLIBC "GLIBC_2.17"
#endif
#define TENSORWRIGHT_FIRST_VERSION(name, version) __asm__(".symver " name "," name "@" version)
TENSORWRIGHT_FIRST_VERSION("_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE",
                           "GLIBCXX_3.4.11");
TENSORWRIGHT_FIRST_VERSION("exp", TENSORWRIGHT_FIRST_GLIBC);
TENSORWRIGHT_FIRST_VERSION("exp2", TENSORWRIGHT_FIRST_GLIBC);
TENSORWRIGHT_FIRST_VERSION("exp2f", TENSORWRIGHT_FIRST_GLIBC);
TENSORWRIGHT_FIRST_VERSION("expf", TENSORWRIGHT_FIRST_GLIBC);
TENSORWRIGHT_FIRST_VERSION("log", TENSORWRIGHT_FIRST_GLIBC);
TENSORWRIGHT_FIRST_VERSION("log2", TENSORWRIGHT_FIRST_GLIBC);
TENSORWRIGHT_FIRST_VERSION("log2f", TENSORWRIGHT_FIRST_GLIBC);
TENSORWRIGHT_FIRST_VERSION("logf", TENSORWRIGHT_FIRST_GLIBC);
TENSORWRIGHT_FIRST_VERSION("pow", TENSORWRIGHT_FIRST_GLIBC);
TENSORWRIGHT_FIRST_VERSION("powf", TENSORWRIGHT_FIRST_GLIBC);
#undef TENSORWRIGHT_FIRST_VERSION
#undef TENSORWRIGHT_FIRST_GLIBC
#endif

namespace tensorflow::data {
class DatasetOpKernel;
}

namespace tensorwright {

// What a registration calls its kernel class: it may stand in brackets, as linalg_ops_common.h has it.
template <class Function>
struct Argument;
template <class Kernel>
struct Argument<void(Kernel)> {
  using Type = Kernel;
};

enum class Runs { kAtOnce, kLater, kFinal };

template <class Kernel>
constexpr Runs kRuns = std::is_base_of_v<::tensorflow::data::DatasetOpKernel, Kernel> ? Runs::kFinal
                       : std::is_base_of_v<::tensorflow::AsyncOpKernel, Kernel> ? Runs::kLater
                                                                                : Runs::kAtOnce;

// The kernel class with its executions counted. One relaxed addition per execution.
template <class Kernel, Runs = kRuns<Kernel>>
class Counted final : public Kernel {
 public:
  Counted(::tensorflow::OpKernelConstruction* context, Counter* counter)
      : Kernel(context), counter_(counter) {}
  void Compute(::tensorflow::OpKernelContext* context) override {
    counter_->Add();
    Kernel::Compute(context);
  }

 private:
  Counter* const counter_;
};

template <class Kernel>
class Counted<Kernel, Runs::kLater> final : public Kernel {
 public:
  Counted(::tensorflow::OpKernelConstruction* context, Counter* counter)
      : Kernel(context), counter_(counter) {}
  void ComputeAsync(::tensorflow::OpKernelContext* context,
                    ::tensorflow::AsyncOpKernel::DoneCallback done) override {
    counter_->Add();
    Kernel::ComputeAsync(context, std::move(done));
  }

 private:
  Counter* const counter_;
};

// Kernels of datasets let nobody override Compute: there it is constructions that are counted.
template <class Kernel>
class Counted<Kernel, Runs::kFinal> final : public Kernel {
 public:
  Counted(::tensorflow::OpKernelConstruction* context, Counter* counter) : Kernel(context) {
    counter->Add();
  }
};

// The data types (numbers of types.proto) that a registration is limited to, by attribute, as the
// selection names them: "T=1" or "T=1|2,Tidx=3". A label, where it has one, comes last: ";label".
inline std::string Types(const ::tensorflow::KernelDef& definition) {
  std::vector<std::string> parts;
  for (const auto& constraint : definition.constraint()) {
    std::string part = constraint.name() + "=";
    const char* between = "";
    for (const int type : constraint.allowed_values().list().type()) {
      part += between + std::to_string(type);
      between = "|";
    }
    parts.push_back(std::move(part));
  }
  std::sort(parts.begin(), parts.end());
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : ",") + part;
  return definition.label().empty() ? all : all + ";" + definition.label();
}

// The definition with its priority raised. Null for a device other than the CPU, where a second
// registration of equal priority would be an error, and for what is not selected: there the stock
// registration stands.
inline const ::tensorflow::KernelDef* Raised(const ::tensorflow::KernelDef* built) {
  if (built == nullptr || built->device_type() != ::tensorflow::DEVICE_CPU ||
      !Selected(built->op().c_str(), Types(*built).c_str())) {
    delete built;
    return nullptr;
  }
  auto* raised = const_cast<::tensorflow::KernelDef*>(built);
  raised->set_priority(raised->priority() + 1);
  return raised;
}

// Registers a kernel with its executions counted; `built` is its definition, null for none. One that
// is not compiled leaves nothing in the library.
template <bool kCompiled, Counter* counter, class Kernel>
::tensorflow::InitOnStartupMarker Register(const ::tensorflow::KernelDef* built,
                                           const char* kernel_class) {
  if constexpr (kCompiled) {
    if (const auto* definition = Raised(built)) {
      counter->Publish();
      ::tensorflow::kernel_factory::OpKernelRegistrar registrar(
          definition, kernel_class,
          [](::tensorflow::OpKernelConstruction* context) -> ::tensorflow::OpKernel* {
            return new Counted<Kernel>(context, counter);
          });
      (void)registrar;
    }
  }
  return {};
}

}  // namespace tensorwright

// Whether a kernel is compiled, and its definition. With TENSORWRIGHT_ONLY_SELECTED the words of the
// registration are read twice, of which `Name` and the devices mean something else each time.
#ifdef TENSORWRIGHT_ONLY_SELECTED
#include "tensorwright/definition.h"
#undef TF_EXTRACT_KERNEL_NAME_Name
#define TF_EXTRACT_KERNEL_NAME_Name(name_str) name_str, Name(name_str)
#define TENSORWRIGHT_IS_COMPILED(kernel_builder_expr)                  \
  [] {                                                                 \
    using Name = ::tensorwright::Definition;                           \
    [[maybe_unused]] constexpr const char* DEVICE_CPU = "CPU";         \
    [[maybe_unused]] constexpr const char* DEVICE_DEFAULT = "DEFAULT"; \
    return kernel_builder_expr.IsCompiled();                           \
  }()
#define TENSORWRIGHT_BUILT(compiled, kernel_builder_expr) \
  (compiled ? [] {                                        \
    using ::tensorflow::register_kernel::Name;            \
    return kernel_builder_expr.Build();                   \
  }()                                                     \
            : nullptr)
#else
#define TENSORWRIGHT_IS_COMPILED(kernel_builder_expr) true
#define TENSORWRIGHT_BUILT(compiled, kernel_builder_expr) kernel_builder_expr.Build()
#endif

#undef REGISTER_KERNEL_BUILDER_IMPL_3
#define REGISTER_KERNEL_BUILDER_IMPL_3(ctr, op_name, kernel_builder_expr, is_system_kernel, ...) \
  static ::tensorwright::Counter tensorwright_counter_##ctr(op_name, #__VA_ARGS__);              \
  static constexpr bool tensorwright_compiled_##ctr =                                            \
      TENSORWRIGHT_IS_COMPILED(kernel_builder_expr);                                             \
  static ::tensorflow::InitOnStartupMarker const register_kernel_##ctr TF_ATTRIBUTE_UNUSED =     \
      TF_INIT_ON_STARTUP_IF(is_system_kernel || (SHOULD_REGISTER_OP_KERNEL(#__VA_ARGS__) &&      \
                                                 SHOULD_REGISTER_OP(op_name)))                   \
      << ::tensorwright::Register<tensorwright_compiled_##ctr, &tensorwright_counter_##ctr,      \
                                  typename ::tensorwright::Argument<void(__VA_ARGS__)>::Type>(   \
             TENSORWRIGHT_BUILT(tensorwright_compiled_##ctr, kernel_builder_expr), #__VA_ARGS__);

#endif  // TENSORWRIGHT_REGISTRATION_H_
