// What of a loop is needed for the outputs that somebody uses. TensorFlow takes loops apart and prunes
// what nobody does, such as the gradient of a layer's input where nothing before it is trained.

#ifndef TENSORWRIGHT_OPS_LOOPS_NEEDED_H_
#define TENSORWRIGHT_OPS_LOOPS_NEEDED_H_

#include <utility>
#include <vector>

#include "tensorwright/ops/loops/loop.h"

namespace tensorwright {

// Of each value whether it is needed. An argument is if the condition reads it, or an operation that is
// needed; what the iteration before leaves for it is needed then, too.
inline std::vector<bool> NeededValues(const WhileLoop& loop, std::vector<bool> outputs) {
  const Routine& body = loop.body;
  for (const Operation& operation : loop.condition.operations) {
    for (const int input : operation.inputs) {
      if (input < loop.condition.arity()) outputs[input] = true;
    }
  }
  for (const int result : loop.condition.results) {
    if (result < loop.condition.arity()) outputs[result] = true;
  }
  std::vector<bool> needed(body.makers.size(), false);
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
    const Operation* maker = body.maker(value);
    if (maker == nullptr) {
      need(body.results[value]);
    } else {
      for (const int input : maker->inputs) need(input);
    }
  }
  return needed;
}

// The loop without what is not needed: those outputs are its inputs then.
inline WhileLoop NeededOf(const WhileLoop& loop, const std::vector<bool>& outputs) {
  const std::vector<bool> needed = NeededValues(loop, outputs);
  WhileLoop less = {{}, loop.condition};
  Routine& body = less.body;
  body.arguments = loop.body.arguments;
  body.makers.assign(needed.size(), -1);
  for (const Operation& operation : loop.body.operations) {
    bool stays = false;
    for (int i = 0; i < operation.outputs; ++i) stays = stays || needed[operation.output + i];
    if (!stays) continue;
    for (int i = 0; i < operation.outputs; ++i) {
      body.makers[operation.output + i] = static_cast<int>(body.operations.size());
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
