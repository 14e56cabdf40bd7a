// Removes the ops of a loop that serve only unused outputs, such as the gradient of a layer's input
// if no layer before it is trained. TensorFlow prunes them too, after it has lowered the loop.

#ifndef TENSORWRIGHT_OPS_LOOPS_NEEDED_H_
#define TENSORWRIGHT_OPS_LOOPS_NEEDED_H_

#include <vector>

#include "tensorwright/ops/loops/loop.h"

namespace tensorwright {

// Returns for each value of the body whether it is needed. An argument is needed if it is a used
// output, if the condition reads it or if a needed op reads it. Then its result in the previous
// iteration is needed, too.
//
// Args:
//   outputs: for each argument, whether the loop's output of the same index is used.
inline std::vector<bool> FindNeededValues(const WhileLoop& loop, std::vector<bool> outputs) {
  const Routine& body = loop.body;
  for (const Operation& operation : loop.condition.operations) {
    for (const int input : operation.inputs) {
      if (input < loop.condition.arity()) outputs[input] = true;
    }
  }
  for (const int result : loop.condition.results) {
    if (result < loop.condition.arity()) outputs[result] = true;
  }
  std::vector<bool> needed(body.producers.size(), false);
  std::vector<int> open;
  const auto need = [&](int value) {
    if (!needed[value]) open.push_back(value);
    needed[value] = true;
  };
  for (int i = 0; i < body.arity(); ++i) {
    if (outputs[i]) need(i), need(body.results[i]);
  }
  while (!open.empty()) {
    const int value = open.back();
    open.pop_back();
    const Operation* producer = body.producer(value);
    if (producer == nullptr) {
      need(body.results[value]);
    } else {
      for (const int input : producer->inputs) need(input);
    }
  }
  return needed;
}

// Returns the loop without the ops that are not needed. Outputs that are not needed become the
// loop's inputs. Values keep their numbers.
inline WhileLoop RemoveUnneededOps(const WhileLoop& loop, const std::vector<bool>& outputs) {
  const std::vector<bool> needed = FindNeededValues(loop, outputs);
  WhileLoop less = {{}, loop.condition};
  Routine& body = less.body;
  body.arguments = loop.body.arguments;
  body.producers.assign(needed.size(), -1);
  for (const Operation& operation : loop.body.operations) {
    bool stays = false;
    for (int i = 0; i < operation.outputs; ++i) stays = stays || needed[operation.output + i];
    if (!stays) continue;
    for (int i = 0; i < operation.outputs; ++i) {
      body.producers[operation.output + i] = static_cast<int>(body.operations.size());
    }
    body.operations.push_back(operation);
  }
  for (int i = 0; i < body.arity(); ++i) {
    body.results.push_back(needed[i] ? loop.body.results[i] : i);
  }
  CountUses(body);
  return less;
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_NEEDED_H_
