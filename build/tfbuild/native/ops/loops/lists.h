// Plans the ops on tensor lists: which items an iteration reads and writes.

#ifndef TENSORWRIGHT_OPS_LOOPS_LISTS_H_
#define TENSORWRIGHT_OPS_LOOPS_LISTS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>

#include "tensorwright/ops/loops/draft.h"

namespace tensorwright {

// Lists are arguments of the loop, or are reserved in an iteration. In each iteration a list may be
// changed once: by a pop, a push, or an item that is set or added to. Before that its items may be
// read by index, unless the loop pushes to the list or adds to its items. Items of a list must have
// the same type and shape if the loop reads any of them.
//
// Functions return false if something is not supported.
class Lists {
 public:
  explicit Lists(PlanBuilder& draft) : builder_(draft) {}

  // Plans one op on lists, other than AddN.
  bool Add(const Operation& operation) {
    const auto what = operation.what;
    ValueInfo& fact = builder_.Out(operation);
    if (what == Do::kReserve) return Reserve(operation);
    const ValueInfo list = builder_.Of(operation, 0);
    if (list.is != ValueKind::kList) return false;
    if (what == Do::kLength || what == Do::kElementShape) {
      if (!IsUnchangedArgument(list) || builder_.plan.popped.count(list.list)) return false;
      fact.is = ValueKind::kNumbers;
      if (what == Do::kLength) {
        fact.numbers = {
            {}, {static_cast<std::int64_t>(builder_.given.lists[list.list]->tensors().size())}};
        return !IsResultOf(list.list, Do::kPushBack) && !IsResultOf(list.list, Do::kPopBack);
      }
      if (IsResultOf(list.list, Do::kAddN)) return false;  // It may get another element shape.
      const auto& shape = builder_.given.lists[list.list]->element_shape;
      if (shape.unknown_rank()) {
        fact.numbers = {{}, {-1}};
      } else {
        fact.numbers.dimensions = {shape.dims()};
        for (int i = 0; i < shape.dims(); ++i) fact.numbers.values.push_back(shape.dim_size(i));
      }
      return true;
    }
    if (operation.element_type != list.element_type) return false;
    if (what == Do::kGetItem)
      return IsUnchangedArgument(list) && Read(operation, list.list, false, fact);
    if (what == Do::kPopBack) {
      if (!IsUnchangedArgument(list)) return false;
      fact = list;
      fact.popped = true;
      return Read(operation, list.list, true, builder_.Out(operation, 1));
    }
    return PlanWrite(operation, list);
  }

  // Plans AddN of two lists: an argument, and a list that was reserved in this iteration with one
  // item set. It adds this item to the argument's item. The gradient of TensorListGetItem has this
  // form.
  bool Join(const Operation& operation) {
    if (operation.inputs.size() != 2) return false;
    ValueInfo list = builder_.Of(operation, 0), added = builder_.Of(operation, 1);
    if (!IsUnchangedArgument(list)) std::swap(list, added);
    if (!IsUnchangedArgument(list) || added.list >= 0 || !added.write || added.write->is_number)
      return false;
    if (builder_.body.uses[operation.inputs[0]] != 1 ||
        builder_.body.uses[operation.inputs[1]] != 1 || builder_.body.uses[added.write->value] != 1)
      return false;
    const Memory& memory = builder_.plan.memories[added.write->view.memory];
    if (memory.where != Memory::Where::kOwn || added.element_type != list.element_type ||
        !Holds(added.element_shape, memory.dimensions)) {
      return false;
    }
    const auto size = static_cast<std::int64_t>(builder_.given.lists[list.list]->tensors().size());
    if (added.numbers.values != Dimensions{size}) return false;
    ValueInfo& fact = builder_.Out(operation);
    fact = list;
    fact.write = added.write;
    fact.write->how = ListWrite::How::kAdd;
    fact.write->element_shape = added.element_shape;
    return true;
  }

  // Checks all reads and writes, after the counters were followed. All indices must be in range.
  // Each item that is read must be an item of the input, or a loop-invariant value that an earlier
  // iteration wrote. Completes `is_last` and `has_own_memory` of the writes.
  bool CheckAccesses() {
    for (const int list : builder_.plan.popped) {
      if (static_cast<std::int64_t>(builder_.given.lists[list]->tensors().size()) <
          builder_.plan.iterations) {
        return false;
      }
    }
    for (ListRead& read : builder_.plan.reads) {
      if (!read.pops && !IsReadable(read)) return false;
    }
    for (auto& [list, write] : builder_.plan.writes) {
      if (!IsWritable(list, write)) return false;
      write.is_last =
          write.how == ListWrite::How::kSet && builder_.plan.numbers.count(write.index) != 0;
      write.has_own_memory = IsAlone(list, write);
    }
    return true;
  }

 private:
  using ValueKind = ValueInfo::ValueKind;

  // Whether the value is an argument that this iteration has not changed.
  bool IsUnchangedArgument(const ValueInfo& fact) const {
    return fact.is == ValueKind::kList && fact.list >= 0 && !fact.write && !fact.popped;
  }

  // Whether the body's result for a list is the output of such an operation.
  bool IsResultOf(int list, Do what) const {
    const Operation* producer = builder_.body.producer(builder_.body.results[list]);
    return producer != nullptr && producer->what == what;
  }

  // Whether a list with this element shape may have an item with these dimensions.
  static bool Holds(const tensorflow::PartialTensorShape& wanted, const Dimensions& item) {
    tensorflow::PartialTensorShape shape;
    return MakeElementShape(item, &shape) && wanted.IsCompatibleWith(shape);
  }

  // Makes an element shape, in which -1 is an unknown dimension. Returns false if it is not valid.
  static bool MakeElementShape(const Dimensions& sizes, tensorflow::PartialTensorShape* shape) {
    const auto rank = static_cast<int>(sizes.size());
    return tensorflow::PartialTensorShape::MakePartialShape(sizes.data(), rank, shape).ok();
  }

  // Plans TensorListReserve. Its element shape is a vector, or -1 if the rank is unknown.
  bool Reserve(const Operation& operation) {
    const ValueInfo &shape = builder_.Of(operation, 0), &size = builder_.Of(operation, 1);
    if (!builder_.IsScalar(size)) return false;
    ValueInfo& fact = builder_.Out(operation);
    fact.is = ValueKind::kList;
    fact.numbers = size.numbers;
    fact.element_type = operation.element_type;
    if (builder_.IsScalar(shape)) return shape.numbers.values[0] == -1;
    return builder_.IsVector(shape) && MakeElementShape(shape.numbers.values, &fact.element_shape);
  }

  // Plans the read of an item, at an index or from the end (`pops`). `fact` becomes the item: data,
  // constant integers, or a counter. Integers must be the same in all items, unless they are popped
  // one by one.
  bool Read(const Operation& operation, int list, bool pops, ValueInfo& fact) {
    const auto& items = builder_.given.lists[list]->tensors();
    ListRead read = {list, pops};
    if (!pops) {
      if (builder_.Of(operation, 1).is != ValueKind::kNumbers &&
          builder_.Of(operation, 1).is != ValueKind::kCounter)
        return false;
      read.index = operation.inputs[1];
      if (!KeepIndex(read.index)) return false;
    }
    if (items.empty()) return false;
    const tensorflow::Tensor& first = items[0];
    const tensorflow::DataType type = first.dtype();
    bool alike = true, same = true;
    for (const tensorflow::Tensor& item : items) {
      alike = alike && item.dtype() == type && item.shape() == first.shape();
      same = same && item.data() == first.data();
    }
    if (!alike || !HasFewIntegers(first)) return false;
    if (type == tensorflow::DT_INT32 || type == tensorflow::DT_INT64) {
      fact.numbers = NumbersOf(first);
      for (std::size_t i = 1; !same && i < items.size(); ++i) {
        if (!(NumbersOf(items[i]) == fact.numbers)) return pops && Counts(operation, list, fact);
      }
      fact.is = ValueKind::kNumbers;
      if (pops) {
        builder_.plan.popped.insert(list);
      } else {
        if (!builder_.IsFixed(list)) return false;
        builder_.plan.reads.push_back(read);
      }
      return true;
    }
    if (type != tensorflow::DT_FLOAT && type != tensorflow::DT_BOOL) return false;
    builder_.plan.reads.push_back(read);
    const int which = static_cast<int>(builder_.plan.reads.size()) - 1;
    if (same && items.size() > 1 && (pops || builder_.IsFixed(list))) {
      builder_.Data(fact, builder_.NewFixed({Fixed::From::kFirstItem, which}, first));
    } else {
      builder_.Data(fact, builder_.NewMemory(Memory::Where::kItems, which, DimensionsOf(first),
                                             type == tensorflow::DT_BOOL));
    }
    if (pops) builder_.plan.popped.insert(list);
    return true;
  }

  // Records an index if it is loop-invariant. Returns false if it is not a scalar.
  bool KeepIndex(int value) {
    const ValueInfo& fact = builder_.facts[value];
    if (fact.is != ValueKind::kNumbers) return true;
    if (!builder_.IsScalar(fact)) return false;
    builder_.plan.numbers[value] = fact.numbers.values[0];
    return true;
  }

  // Plans a pop of single numbers that differ: the popped number is a counter.
  bool Counts(const Operation& operation, int list, ValueInfo& fact) {
    if (fact.numbers.values.size() != 1) return false;
    builder_.counter_operations.push_back(&operation);
    builder_.plan.popped.insert(list);
    fact.is = ValueKind::kCounter;
    return true;
  }

  // Plans the push of an item, or the write of an item at an index. Data that is only a part of its
  // memory is copied first, once for each value.
  bool PlanWrite(const Operation& operation, const ValueInfo& list) {
    const bool sets = operation.what == Do::kSetItem;
    if (list.write || list.popped || (list.list < 0 && !sets)) return false;
    ListWrite write = {sets ? ListWrite::How::kSet : ListWrite::How::kPush};
    if (sets) {
      const ValueKind is = builder_.Of(operation, 1).is;
      if (is != ValueKind::kNumbers && is != ValueKind::kCounter) return false;
      write.index = operation.inputs[1];
      if (!KeepIndex(write.index)) return false;
    }
    const int value = operation.inputs[sets ? 2 : 1];
    write.value = value;
    ValueInfo& item = builder_.facts[value];
    if (item.is == ValueKind::kNumbers || item.is == ValueKind::kCounter) {
      if (list.list < 0) return false;
      write.is_number = true;
      write.type = list.element_type;
      if (!IsNumber(write.type)) return false;
      if (item.is == ValueKind::kNumbers) {
        builder_.plan.constants.push_back(TensorOf(item.numbers, write.type));
        write.constant = static_cast<int>(builder_.plan.constants.size()) - 1;
      }
    } else if (item.is == ValueKind::kData) {
      if (!builder_.IsWhole(item)) {
        const auto copied = copies_.find(value);
        if (copied == copies_.end()) {
          ValueInfo dense = builder_.NewData(item.dimensions, builder_.IsBytes(item));
          builder_.Copy(item.view, dense.view, builder_.IsBytes(item));
          copies_.emplace(value, dense);
          write.view = dense.view;
        } else {
          write.view = copied->second.view;
        }
      } else {
        write.view = item.view;
      }
    } else {
      return false;
    }
    ValueInfo& fact = builder_.Out(operation);
    fact = list;
    fact.write = write;
    return true;
  }

  // Checks the indices of a read, and finds the iterations that read an item which an earlier
  // iteration wrote (`reads_other`). Such an item must be loop-invariant float32 data.
  bool IsReadable(ListRead& read) {
    const auto size = static_cast<std::int64_t>(builder_.given.lists[read.list]->tensors().size());
    const auto found = builder_.plan.writes.find(read.list);
    const ListWrite* write = found == builder_.plan.writes.end() ? nullptr : &found->second;
    if (builder_.plan.popped.count(read.list)) return false;  // The list gets shorter.
    if (write != nullptr && write->how != ListWrite::How::kSet) return false;
    std::set<std::int64_t> written;
    for (std::int64_t t = 0; t < builder_.plan.iterations; ++t) {
      const std::int64_t* index = builder_.IndexAtIteration(read.index, t);
      if (index == nullptr || *index < 0 || *index >= size) return false;
      read.reads_other.push_back(written.count(*index) != 0);
      if (write == nullptr) continue;
      const std::int64_t* to = builder_.IndexAtIteration(write->index, t);
      if (to == nullptr) return false;
      written.insert(*to);
    }
    if (std::none_of(read.reads_other.begin(), read.reads_other.end(),
                     [](bool is) { return is; })) {
      read.reads_other.clear();
      return true;
    }
    if (write->is_number) return false;
    const Memory& other = builder_.plan.memories[write->view.memory];
    read.other = write->view.memory;
    const auto& items = builder_.given.lists[read.list]->tensors();
    return other.where == Memory::Where::kFixed && !other.bytes &&
           other.dimensions == DimensionsOf(items[0]);
  }

  // Whether the list can take all writes: shapes must fit, indices must be in range, pushes must
  // not exceed the list's limit, and no two iterations may add to the same item.
  bool IsWritable(int list, const ListWrite& write) const {
    const tensorflow::TensorList& given = *builder_.given.lists[list];
    const auto size = static_cast<std::int64_t>(given.tensors().size());
    const Dimensions* dimensions = DimensionsOfItem(write);
    if (dimensions == nullptr || !Holds(given.element_shape, *dimensions)) return false;
    if (write.how == ListWrite::How::kPush) {
      return given.max_num_elements == -1 ||
             size + builder_.plan.iterations <= given.max_num_elements;
    }
    std::set<std::int64_t> seen;
    for (std::int64_t t = 0; t < builder_.plan.iterations; ++t) {
      const std::int64_t* index = builder_.IndexAtIteration(write.index, t);
      if (index == nullptr || *index < 0 || *index >= size) return false;
      if (!seen.insert(*index).second && write.how == ListWrite::How::kAdd) return false;
    }
    return true;
  }

  // Returns the dimensions of a written item, or nullptr if they are not known.
  const Dimensions* DimensionsOfItem(const ListWrite& write) const {
    if (!write.is_number) return &builder_.plan.memories[write.view.memory].dimensions;
    if (write.constant >= 0) return &builder_.facts[write.value].numbers.dimensions;
    const auto found = builder_.plan.counters.find(write.value);
    return found == builder_.plan.counters.end() ? nullptr : &found->second.dimensions;
  }

  // Whether no state and no other list uses the memory of the written item.
  bool IsAlone(int list, const ListWrite& write) const {
    if (write.is_number) return false;
    const auto& [states, writes] = std::tie(builder_.plan.states, builder_.plan.writes);
    const auto is_there = [&](const View& view) { return view.memory == write.view.memory; };
    return std::none_of(states.begin(), states.end(),
                        [&](const auto& each) { return is_there(each.second); }) &&
           std::none_of(writes.begin(), writes.end(), [&](const auto& each) {
             return each.first != list && is_there(each.second.view);
           });
  }

  PlanBuilder& builder_;
  std::map<int, ValueInfo> copies_;  // Value → its copy that goes into lists.
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_LISTS_H_
