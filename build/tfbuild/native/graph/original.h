// Runs the original ops of a fused op, as a function that the fused op's kernel calls.

#ifndef TENSORWRIGHT_GRAPH_ORIGINAL_H_
#define TENSORWRIGHT_GRAPH_ORIGINAL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorwright/graph/functions.h"
#include "tensorwright/graph/xla.h"

namespace tensorwright {

// Returns a function name with this prefix that is unique in this process. TensorFlow caches
// instantiated functions by name and by the address of the graph's function library. If a new
// library were at the address of a deleted one, a reused name would run the deleted library's
// function.
inline std::string MakeOriginalName(const std::string& prefix,
                                    const tensorflow::FunctionLibraryDefinition& library) {
  static std::atomic<std::int64_t> made{0};
  return library.UniqueFunctionName(prefix + std::to_string(made++) + "_");
}

constexpr char kOriginalAttr[] = "_tensorwright_left";  // Marks original nodes: not to be fused.

// Returns a function without a name that contains only `node`, with arguments in_0, in_1, ... of the
// types `inputs` and results out_0, out_1, ... of the types `outputs`, which the node has as its
// output "output".
inline tensorflow::FunctionDef MakeOriginalFunction(const tensorflow::NodeDef& node,
                                                    const tensorflow::AttrValue::ListValue& inputs,
                                                    const tensorflow::AttrValue::ListValue& outputs,
                                                    bool is_stateful) {
  tensorflow::FunctionDef function;
  function.mutable_signature()->set_is_stateful(is_stateful);
  tensorflow::NodeDef* original = function.add_node_def();
  *original = node;
  original->set_name("original");
  original->clear_input();
  tensorflow::AddNodeAttr(kOriginalAttr, true, original);
  for (int i = 0; i < inputs.type_size(); ++i) {
    auto* argument = function.mutable_signature()->add_input_arg();
    argument->set_name("in_" + std::to_string(i));
    argument->set_type(inputs.type(i));
    original->add_input(argument->name());
  }
  for (int i = 0; i < outputs.type_size(); ++i) {
    auto* result = function.mutable_signature()->add_output_arg();
    result->set_name("out_" + std::to_string(i));
    result->set_type(outputs.type(i));
    (*function.mutable_ret())[result->name()] = "original:output:" + std::to_string(i);
  }
  return function;
}

// Returns those of `functions` that ops of TensorFlow call. Fused ops hold functions, too.
inline std::set<std::string> FindCalledFunctions(
    const std::set<std::string>& functions, const tensorflow::Graph& graph,
    const tensorflow::FunctionLibraryDefinition& library) {
  std::vector<std::string> names;
  const auto add_functions = [&](const tensorflow::NodeDef& node) {
    if (node.op().rfind("_Tensorwright", 0) == 0 || node.attr().count(kOriginalAttr)) return;
    AddFunctions(node, library, &names);
  };
  for (const tensorflow::Node* node : graph.op_nodes()) add_functions(node->def());
  for (const std::string& name : library.ListFunctionNames()) {
    for (const tensorflow::NodeDef& node : library.Find(name)->node_def()) add_functions(node);
  }
  std::set<std::string> called;
  for (const std::string& name : names) {
    if (functions.count(name)) called.insert(name);
  }
  return called;
}

// Changes `node` into the fused op `op`, and adds `definition`, the function with the original node,
// to `library`. Its name begins with `prefix`.
inline absl::Status ConvertToFusedOp(const char* op, const char* prefix, bool in_function,
                                     tensorflow::FunctionDef definition,
                                     tensorflow::FunctionLibraryDefinition* library,
                                     tensorflow::NodeDef* node) {
  std::string name = in_function ? "" : FindEqualFunction(*library, prefix, definition);
  if (name.empty()) name = MakeOriginalName(prefix, *library);
  const bool is_stateful = definition.signature().is_stateful();
  definition.mutable_signature()->set_name(name);
  TF_RETURN_IF_ERROR(library->AddFunctionDef(definition));
  node->set_op(op);
  tensorflow::NameAttrList function;
  function.set_name(name);
  tensorflow::AddNodeAttr("original", function, node);
  // Sessions keep only the kernels of stateful ops (Original).
  tensorflow::AddNodeAttr("in_function", in_function || !is_stateful, node);
  // When TensorFlow prepares a graph, it runs stateless ops whose inputs are constants, but those
  // with this attribute (constant_folding.cc). It has no other effect if it is an empty list.
  if (!is_stateful) tensorflow::AddNodeAttr("_scoped_allocator", std::vector<int>(), node);
  return absl::OkStatus();
}

// The function with the original ops, which the node's attribute `original` names.
//
// If the attribute `in_function` is true, TensorFlow certainly keeps the function longer than the
// kernel. Then the function is instantiated once for each function library runtime, and released
// with the kernel. Otherwise it is not released: a session keeps the kernels of stateful ops until
// it ends, but the functions of a graph only as long as the graph. Thread-safe.
class Original {
 public:
  using Runtime = tensorflow::FunctionLibraryRuntime;

  explicit Original(tensorflow::OpKernelConstruction* context) {
    OP_REQUIRES_OK(context, context->GetAttr("original", &function_));
    OP_REQUIRES_OK(context, context->GetAttr("in_function", &in_function_));
  }
  ~Original() {
    for (const auto& [library, handle] : handles_) library->ReleaseHandle(handle).IgnoreError();
  }
  Original(const Original&) = delete;
  Original& operator=(const Original&) = delete;

  // Instantiates the function in `library`.
  absl::Status Instantiate(Runtime* library, const Runtime::InstantiateOptions& options,
                           Runtime::Handle* handle) {
    const auto instantiate = [&] {
      return library->Instantiate(function_.name(), tensorflow::AttrSlice(&function_.attr()),
                                  options, handle);
    };
    if (!in_function_) return instantiate();
    tensorflow::mutex_lock lock(mutex_);
    const auto known = handles_.find(library);
    if (known != handles_.end()) {
      *handle = known->second;
      return absl::OkStatus();
    }
    TF_RETURN_IF_ERROR(instantiate());
    handles_.emplace(library, *handle);
    return absl::OkStatus();
  }

  using Results = std::vector<tensorflow::Tensor>;

  // Runs the function in a kernel, all on the calling thread: it is a thread of the pool, and must
  // not wait for others of the pool.
  absl::Status CallInline(tensorflow::OpKernelContext* context,
                          const std::vector<tensorflow::Tensor>& arguments, Results* results);

  // Runs the function with the inputs of a kernel and sets its outputs, as CallInline.
  absl::Status RunInline(tensorflow::OpKernelContext* context);

  // Runs the function with the inputs of an asynchronous kernel, then calls `use` with its results.
  // If it fails, ends the kernel with the error.
  void Call(tensorflow::OpKernelContext* context, tensorflow::AsyncOpKernel::DoneCallback done,
            std::function<void(const Results&)> use);

  // Runs the function as an asynchronous kernel of its inputs and outputs.
  void Run(tensorflow::OpKernelContext* context, tensorflow::AsyncOpKernel::DoneCallback done);

 private:
  tensorflow::NameAttrList function_;
  bool in_function_ = false;
  tensorflow::mutex mutex_;
  std::map<Runtime*, Runtime::Handle> handles_ TF_GUARDED_BY(mutex_);
};

// Returns options to run a function in the step of a kernel, on the same threads. Callers may set
// another runner.
inline tensorflow::FunctionLibraryRuntime::Options OptionsOf(tensorflow::OpKernelContext* context) {
  tensorflow::FunctionLibraryRuntime::Options options(context->step_id());
  options.rendezvous = context->rendezvous();
  options.cancellation_manager = context->cancellation_manager();
  options.collective_executor = context->collective_executor();
  options.step_container = context->step_container();
  options.stats_collector = context->stats_collector();
  options.runner = context->runner();
  return options;
}

// Returns all inputs of a kernel.
inline std::vector<tensorflow::Tensor> ArgumentsOf(tensorflow::OpKernelContext* context) {
  std::vector<tensorflow::Tensor> arguments;
  for (int i = 0; i < context->num_inputs(); ++i) arguments.push_back(context->input(i));
  return arguments;
}

inline absl::Status Original::CallInline(tensorflow::OpKernelContext* context,
                                         const std::vector<tensorflow::Tensor>& arguments,
                                         Results* results) {
  auto* library = context->function_library();
  if (library == nullptr) return tensorflow::errors::Internal(function_.name(), " has no library");
  Runtime::Handle handle;
  TF_RETURN_IF_ERROR(Instantiate(library, {}, &handle));
  std::function<void(std::function<void()>)> here = [](std::function<void()> work) { work(); };
  auto options = OptionsOf(context);
  options.runner = &here;
  options.run_all_kernels_inline = true;
  return library->RunSync(std::move(options), handle, arguments, results);
}

inline absl::Status Original::RunInline(tensorflow::OpKernelContext* context) {
  Results results;
  TF_RETURN_IF_ERROR(CallInline(context, ArgumentsOf(context), &results));
  for (std::size_t i = 0; i < results.size(); ++i) context->set_output(i, results[i]);
  return absl::OkStatus();
}

inline void Original::Call(tensorflow::OpKernelContext* context,
                           tensorflow::AsyncOpKernel::DoneCallback done,
                           std::function<void(const Results&)> use) {
  auto* library = context->function_library();
  Runtime::Handle handle;
  // TensorFlow lowers the loops of multi-device functions, as it would have lowered this one.
  Runtime::InstantiateOptions making;
  making.target = context->device()->name();
  making.is_multi_device_function = true;
  making.input_devices.assign(context->num_inputs(), making.target);
  making.output_devices.assign(context->num_outputs(), making.target);
  if (library->config_proto() != nullptr) making.config_proto = *library->config_proto();
  OP_REQUIRES_OK_ASYNC(context, Instantiate(library, making, &handle), done);
  auto* results = new Results;
  library->Run(
      OptionsOf(context), handle, ArgumentsOf(context), results,
      [context, results, use = std::move(use), done = std::move(done)](const absl::Status& status) {
        std::unique_ptr<Results> owned(results);
        if (status.ok()) {
          use(*owned);
        } else {
          context->SetStatus(status);
        }
        done();
      });
}

inline void Original::Run(tensorflow::OpKernelContext* context,
                          tensorflow::AsyncOpKernel::DoneCallback done) {
  Call(context, std::move(done), [context](const Results& results) {
    for (std::size_t i = 0; i < results.size(); ++i) context->set_output(i, results[i]);
  });
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_GRAPH_ORIGINAL_H_
