// Gives the kernels of a source a higher priority than the stock ones, and counts their executions.
// The build includes this header before each kernel source (-include). TensorFlow keeps all
// registrations and uses the one with the highest priority (FindKernelRegistration in
// tensorflow/core/framework/op_kernel.cc). Equal priorities are an error.

#ifndef TENSORWRIGHT_REGISTRATION_H_
#define TENSORWRIGHT_REGISTRATION_H_

// Kernel sources define this before their first include; op_kernel.h must see it, too.
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

// Links these functions to their oldest symbol version; newer C and C++ libraries also have a
// second one. Every library since GCC 4.6 and glibc 2.2.5 (2.17 on aarch64) has the oldest version,
// and the stock wheel is linked with it. So the kernel library loads wherever the stock libraries
// do, and uses the same scalar functions.
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

// Argument<void(Kernel)>::Type is the class Kernel. A registration may write the class in
// parentheses, as linalg_ops_common.h does.
template <class Function>
struct Argument;
template <class Kernel>
struct Argument<void(Kernel)> {
  using Type = Kernel;
};

// How a kernel runs: by Compute, by ComputeAsync, or by a Compute that cannot be overridden.
enum class Runs { kSync, kAsync, kFinalCompute };

template <class Kernel>
constexpr Runs kExecutionKind =
    std::is_base_of_v<::tensorflow::data::DatasetOpKernel, Kernel> ? Runs::kFinalCompute
    : std::is_base_of_v<::tensorflow::AsyncOpKernel, Kernel>       ? Runs::kAsync
                                                                   : Runs::kSync;

// A kernel class that also counts its executions: one relaxed atomic addition each.
template <class Kernel, Runs = kExecutionKind<Kernel>>
class CountingKernel final : public Kernel {
 public:
  CountingKernel(::tensorflow::OpKernelConstruction* context, Counter* counter)
      : Kernel(context), counter_(counter) {}
  void Compute(::tensorflow::OpKernelContext* context) override {
    counter_->Add();
    Kernel::Compute(context);
  }

 private:
  Counter* const counter_;
};

template <class Kernel>
class CountingKernel<Kernel, Runs::kAsync> final : public Kernel {
 public:
  CountingKernel(::tensorflow::OpKernelConstruction* context, Counter* counter)
      : Kernel(context), counter_(counter) {}
  void ComputeAsync(::tensorflow::OpKernelContext* context,
                    ::tensorflow::AsyncOpKernel::DoneCallback done) override {
    counter_->Add();
    Kernel::ComputeAsync(context, std::move(done));
  }

 private:
  Counter* const counter_;
};

// Kernels of datasets declare Compute final, so this counts constructions instead of executions.
template <class Kernel>
class CountingKernel<Kernel, Runs::kFinalCompute> final : public Kernel {
 public:
  CountingKernel(::tensorflow::OpKernelConstruction* context, Counter* counter) : Kernel(context) {
    counter->Add();
  }
};

// Returns the type constraints of a registration, as selections write them: the attributes in
// alphabetical order with the numbers of their data types (types.proto), such as "T=1" or
// "T=1|2,Tidx=3". If the registration has a label, ";label" follows.
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

// Returns the definition with its priority raised by one. If its device is not the CPU or the
// kernel is not selected, deletes it and returns nullptr: the stock registration stays, and a
// second one of equal priority would be an error.
inline const ::tensorflow::KernelDef* RaisePriority(const ::tensorflow::KernelDef* built) {
  if (built == nullptr || built->device_type() != ::tensorflow::DEVICE_CPU ||
      !IsSelected(built->op().c_str(), Types(*built).c_str())) {
    delete built;
    return nullptr;
  }
  auto* raised = const_cast<::tensorflow::KernelDef*>(built);
  raised->set_priority(raised->priority() + 1);
  return raised;
}

// Registers a kernel that counts its executions. Takes ownership of `built`, its definition, which
// may be nullptr. If kCompiled is false, nothing of the kernel is in the library.
template <bool kCompiled, Counter* counter, class Kernel>
::tensorflow::InitOnStartupMarker Register(const ::tensorflow::KernelDef* built,
                                           const char* kernel_class) {
  if constexpr (kCompiled) {
    if (const auto* definition = RaisePriority(built)) {
      counter->Publish();
      ::tensorflow::kernel_factory::OpKernelRegistrar registrar(
          definition, kernel_class,
          [](::tensorflow::OpKernelConstruction* context) -> ::tensorflow::OpKernel* {
            return new CountingKernel<Kernel>(context, counter);
          });
      (void)registrar;
    }
  }
  return {};
}

}  // namespace tensorwright

// TENSORWRIGHT_IS_COMPILED says whether a kernel is compiled; TENSORWRIGHT_BUILT is its definition.
// With TENSORWRIGHT_ONLY_SELECTED, the expression of the registration is used twice: at compile
// time, where `Name` and the devices are those of definition.h, and at run time with TensorFlow's.
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

// Replaces the last step of TensorFlow's REGISTER_KERNEL_BUILDER.
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
