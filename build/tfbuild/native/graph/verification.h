// TENSORWRIGHT_VERIFY=N: the first execution of a fused op and every Nth after it also run the
// original ops. If the results differ, the original's are used, and the group of fused ops is off
// for the rest of the process.

#ifndef TENSORWRIGHT_GRAPH_VERIFICATION_H_
#define TENSORWRIGHT_GRAPH_VERIFICATION_H_

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorwright/graph/difference.h"
#include "tensorwright/graph/events.h"
#include "tensorwright/graph/switches.h"

namespace tensorwright {

namespace events {

inline EventCounter verified("verified executions");     // The original ops ran, too.
inline EventCounter differing("stock: results differ");  // Executions of groups that are off.

}  // namespace events

// What is allowed to groups whose ops compute values near 1, such as those of softmax, that then
// cancel out: a few units in the last place of 1. So results that are all smaller are not compared.
constexpr Allowed kNearOne = {1e-3, 0x1p-21};

// Whether a group of fused ops is on. Declared as an inline variable in ops/NAME/events.h.
class VerifiedGroup {
 public:
  explicit constexpr VerifiedGroup(const char* name, Allowed allowed = {})
      : name_(name), allowed_(allowed) {}

  const Allowed& allowed() const { return allowed_; }

  bool is_off() const { return is_off_.load(std::memory_order_relaxed); }

  // Turns the group off and logs why. Only the first call has an effect.
  void TurnOff(const std::string& reason) {
    if (is_off_.exchange(true)) return;
    LOG(ERROR) << "tensorwright: TENSORWRIGHT_VERIFY found other results than the original ops "
               << "compute: " << reason << ". This process runs the original ops of fused/" << name_
               << " from now on. Turn it off with TENSORWRIGHT_FUSE=-" << name_
               << " and report this line";
  }

 private:
  const char* const name_;
  const Allowed allowed_;
  std::atomic<bool> is_off_{false};
};

// Returns N, or 0 if nothing is verified. Reads the variable at the first call.
inline std::int64_t VerificationInterval() {
  static const std::int64_t interval = [] {
    const std::int64_t read = ReadInterval(std::getenv("TENSORWRIGHT_VERIFY"));
    if (read >= 0) return read;
    LOG(WARNING) << "tensorwright: TENSORWRIGHT_VERIFY is not a whole number, so nothing is "
                 << "verified. Use TENSORWRIGHT_VERIFY=1000 for one execution in 1000";
    return std::int64_t{0};
  }();
  return interval;
}

// Verifies the executions of one kernel. Thread-safe. A kernel that is due runs the original ops
// first, in such a way that they cannot overwrite its inputs.
class Verification {
 public:
  using Tensors = std::vector<tensorflow::Tensor>;

  explicit Verification(VerifiedGroup& group) : group_(group) {}

  // Whether the kernel must run the original ops only. Counts the execution if so.
  bool IsOff() const {
    if (!group_.is_off()) return false;
    events::differing.Add();
    return true;
  }

  // Whether to verify this execution, if the fused code computes it.
  bool IsDue() const {
    const std::int64_t interval = VerificationInterval();
    return interval > 0 && executions_.load(std::memory_order_relaxed) % interval == 0;
  }

  // Counts an execution that the fused code has computed.
  void Count() {
    if (VerificationInterval() > 0) executions_.fetch_add(1, std::memory_order_relaxed);
  }

  // Compares results. Returns true if they agree, else turns the group off. `before` are the values
  // that were updated; empty if the results are no updates. If the results differ, `move` may run
  // the original ops on inputs that are rounded differently, and return their results.
  bool Agree(const tensorflow::OpKernel& kernel, const Tensors& expected, const Tensors& actual,
             const Tensors& before = {}, const std::function<Tensors()>& move = nullptr) {
    events::verified.Add();
    std::string difference = Describe(expected, actual, {}, before);
    if (!difference.empty() && move != nullptr) {
      difference = Describe(expected, actual, move(), before);
    }
    if (difference.empty()) return true;
    group_.TurnOff(kernel.name() + " (" + kernel.type_string() + "): " + difference);
    events::differing.Add();
    return false;
  }

  // Ends an execution that is due. `expected` are the results of the original ops, and
  // `is_computed` says whether the fused code has set the outputs of `context`. Keeps these if they
  // agree, else sets the outputs to `expected`. Outputs that are not required are not compared.
  // `move` is as in Agree.
  void Finish(tensorflow::OpKernelContext* context, const Tensors& expected, bool is_computed,
              const std::function<Tensors()>& move = nullptr) {
    const bool agree = is_computed && Agree(context->op_kernel(), expected,
                                            OutputsOr(context, expected), {}, move);
    if (!agree) ReplaceOutputs(context, expected);
  }

  // Returns the outputs of `context`, and those of `others` that are not required.
  static Tensors OutputsOr(tensorflow::OpKernelContext* context, const Tensors& others) {
    Tensors outputs = others;
    for (int i = 0; i < context->num_outputs(); ++i) {
      if (context->output_required(i)) outputs[i] = *context->mutable_output(i);
    }
    return outputs;
  }

  static void ReplaceOutputs(tensorflow::OpKernelContext* context, const Tensors& outputs) {
    TakeOutputs(context);
    for (std::size_t i = 0; i < outputs.size(); ++i) context->set_output(i, outputs[i]);
  }

  // Removes the outputs from `context` and returns them.
  static Tensors TakeOutputs(tensorflow::OpKernelContext* context) {
    Tensors taken(context->num_outputs());
    for (int i = 0; i < context->num_outputs(); ++i) {
      const std::unique_ptr<tensorflow::Tensor> owned(context->release_output(i).tensor);
      if (owned != nullptr) taken[i] = *owned;
    }
    return taken;
  }

 private:
  std::string Describe(const Tensors& expected, const Tensors& actual, const Tensors& moved,
                       const Tensors& before) const {
    std::string difference = expected.size() == actual.size() ? "" : "other lengths of lists";
    for (std::size_t i = 0; i < expected.size() && difference.empty(); ++i) {
      difference = DescribeDifference(expected[i], actual[i], moved.empty() ? nullptr : &moved[i],
                                      before.empty() ? nullptr : &before[i], group_.allowed());
    }
    return difference;
  }

  VerifiedGroup& group_;
  std::atomic<std::int64_t> executions_{0};
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_GRAPH_VERIFICATION_H_
