// Lists of tensors: what an iteration reads of them and puts into them.

#ifndef TENSORWRIGHT_OPS_LOOPS_LISTS_H_
#define TENSORWRIGHT_OPS_LOOPS_LISTS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>

#include "tensorwright/ops/loops/draft.h"

namespace tensorwright {

class Lists {
 public:
  explicit Lists(Draft& draft) : draft_(draft) {}

  bool Add(const Operation& operation) {
    const auto what = operation.what;
    Fact& fact = draft_.Out(operation);
    if (what == Do::kReserve) {
      fact.is = Is::kList;
      fact.numbers = draft_.Of(operation, 1).numbers;
      fact.dimensions = draft_.Of(operation, 0).numbers.values;
      return draft_.Of(operation, 0).is == Is::kNumbers &&
             draft_.Of(operation, 1).is == Is::kNumbers;
    }
    const Fact list = draft_.Of(operation, 0);
    if (list.is != Is::kList) return false;
    if (what == Do::kLength || what == Do::kElementShape) {
      if (!IsAsGiven(list) || draft_.plan.popped.count(list.list)) return false;
      fact.is = Is::kNumbers;
      if (what == Do::kLength) {
        fact.numbers = {
            {}, {static_cast<std::int64_t>(draft_.given.lists[list.list]->tensors().size())}};
        return !IsChanged(list.list);
      }
      const auto& shape = draft_.given.lists[list.list]->element_shape;
      if (shape.unknown_rank()) {
        fact.numbers = {{}, {-1}};
      } else {
        fact.numbers.dimensions = {shape.dims()};
        for (int i = 0; i < shape.dims(); ++i) fact.numbers.values.push_back(shape.dim_size(i));
      }
      return true;
    }
    if (what == Do::kGetItem) return IsAsGiven(list) && Read(operation, list.list, false, fact);
    if (what == Do::kPopBack) {
      if (!IsAsGiven(list)) return false;
      fact = list;
      fact.popped = true;
      return Read(operation, list.list, true, draft_.Out(operation, 1));
    }
    return Written(operation, list);
  }

  // A list and one of which one item was set.
  bool Join(const Operation& operation) {
    if (operation.inputs.size() != 2) return false;
    Fact list = draft_.Of(operation, 0), added = draft_.Of(operation, 1);
    if (!IsAsGiven(list)) std::swap(list, added);
    if (!IsAsGiven(list) || added.list >= 0 || !added.write || added.write->is_number) return false;
    if (draft_.body.uses[operation.inputs[0]] != 1 || draft_.body.uses[operation.inputs[1]] != 1 ||
        draft_.body.uses[added.write->value] != 1)
      return false;
    const Memory& memory = draft_.plan.memories[added.write->view.memory];
    if (memory.where != Memory::Where::kOwn || !Holds(added, memory.dimensions)) return false;
    const auto size = static_cast<std::int64_t>(draft_.given.lists[list.list]->tensors().size());
    if (added.numbers.values != Dimensions{size}) return false;
    Fact& fact = draft_.Out(operation);
    fact = list;
    fact.write = added.write;
    fact.write->how = ListWrite::How::kAdd;
    return true;
  }

  // Whether each item that is read is one that the loop got, or always the same one, and each that is
  // written is in the list.
  bool ArePlain() {
    for (const int list : draft_.plan.popped) {
      if (static_cast<std::int64_t>(draft_.given.lists[list]->tensors().size()) <
          draft_.plan.iterations) {
        return false;
      }
    }
    for (ListRead& read : draft_.plan.reads) {
      if (!read.pops && !IsReadable(read)) return false;
    }
    for (auto& [list, write] : draft_.plan.writes) {
      if (!IsWritable(list, write)) return false;
      write.is_last =
          write.how == ListWrite::How::kSet && draft_.plan.numbers.count(write.index) != 0;
      write.is_alone = IsAlone(list, write);
    }
    return true;
  }

 private:
  using Is = Fact::Is;

  // A list that the loop got and has not changed.
  bool IsAsGiven(const Fact& fact) const {
    return fact.is == Is::kList && fact.list >= 0 && !fact.write && !fact.popped;
  }

  // Whether the number of items changes from iteration to iteration.
  bool IsChanged(int list) const {
    const Operation* maker = draft_.body.maker(draft_.body.results[list]);
    return maker != nullptr && (maker->what == Do::kPushBack || maker->what == Do::kPopBack);
  }

  // Whether a list that was reserved may have an item of these dimensions.
  static bool Holds(const Fact& reserved, const Dimensions& item) {
    const Dimensions& shape = reserved.dimensions;
    if (shape == Dimensions{-1}) return true;  // (of any rank, or of one)
    return shape.size() == item.size() &&
           std::equal(shape.begin(), shape.end(), item.begin(),
                      [](auto wanted, auto size) { return wanted == -1 || wanted == size; });
  }

  bool Read(const Operation& operation, int list, bool pops, Fact& fact) {
    const auto& items = draft_.given.lists[list]->tensors();
    ListRead read = {list, pops};
    if (!pops) {
      if (draft_.Of(operation, 1).is != Is::kNumbers && draft_.Of(operation, 1).is != Is::kCounter)
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
    if (!alike || !IsFew(first)) return false;
    if (type == tensorflow::DT_INT32 || type == tensorflow::DT_INT64) {
      fact.numbers = NumbersOf(first);
      for (std::size_t i = 1; !same && i < items.size(); ++i) {
        if (!(NumbersOf(items[i]) == fact.numbers)) return pops && Counts(operation, list, fact);
      }
      fact.is = Is::kNumbers;
      if (pops) {
        draft_.plan.popped.insert(list);
      } else {
        if (!draft_.IsFixed(list)) return false;
        draft_.plan.reads.push_back(read);
      }
      return true;
    }
    if (type != tensorflow::DT_FLOAT && type != tensorflow::DT_BOOL) return false;
    draft_.plan.reads.push_back(read);
    const int which = static_cast<int>(draft_.plan.reads.size()) - 1;
    if (same && items.size() > 1 && (pops || draft_.IsFixed(list))) {
      draft_.Data(fact, draft_.NewFixed({Fixed::From::kFirstItem, which}, first));
    } else {
      draft_.Data(fact, draft_.NewMemory(Memory::Where::kItems, which, DimensionsOf(first),
                                         type == tensorflow::DT_BOOL));
    }
    if (pops) draft_.plan.popped.insert(list);
    return true;
  }

  bool KeepIndex(int value) {
    const Fact& fact = draft_.facts[value];
    if (fact.is != Is::kNumbers) return true;
    if (fact.numbers.values.size() != 1) return false;
    draft_.plan.numbers[value] = fact.numbers.values[0];
    return true;
  }

  // Items that are single numbers, and not all the same.
  bool Counts(const Operation& operation, int list, Fact& fact) {
    if (fact.numbers.values.size() != 1) return false;
    draft_.counting.push_back(&operation);
    draft_.plan.popped.insert(list);
    fact.is = Is::kCounter;
    return true;
  }

  bool Written(const Operation& operation, const Fact& list) {
    const bool sets = operation.what == Do::kSetItem;
    if (list.write || list.popped || (list.list < 0 && !sets)) return false;
    ListWrite write = {sets ? ListWrite::How::kSet : ListWrite::How::kPush};
    if (sets) {
      const Is is = draft_.Of(operation, 1).is;
      if (is != Is::kNumbers && is != Is::kCounter) return false;
      write.index = operation.inputs[1];
      if (!KeepIndex(write.index)) return false;
    }
    const int value = operation.inputs[sets ? 2 : 1];
    write.value = value;
    Fact& item = draft_.facts[value];
    if (item.is == Is::kNumbers || item.is == Is::kCounter) {
      if (list.list < 0) return false;
      write.is_number = true;
      write.type = draft_.given.lists[list.list]->element_dtype;
      if (!IsNumber(write.type)) return false;
      if (item.is == Is::kNumbers) {
        draft_.plan.constants.push_back(TensorOf(item.numbers, write.type));
        write.constant = static_cast<int>(draft_.plan.constants.size()) - 1;
      }
    } else if (item.is == Is::kData) {
      if (!draft_.IsWhole(item)) {
        const auto copied = copies_.find(value);
        if (copied == copies_.end()) {
          Fact dense = draft_.NewData(item.dimensions, draft_.IsBytes(item));
          draft_.Copy(item.view, dense.view, draft_.IsBytes(item));
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
    Fact& fact = draft_.Out(operation);
    fact = list;
    fact.write = write;
    return true;
  }

  bool IsReadable(ListRead& read) {
    const auto size = static_cast<std::int64_t>(draft_.given.lists[read.list]->tensors().size());
    const auto found = draft_.plan.writes.find(read.list);
    const ListWrite* write = found == draft_.plan.writes.end() ? nullptr : &found->second;
    if (write != nullptr && write->how != ListWrite::How::kSet) return false;
    std::set<std::int64_t> written;
    for (std::int64_t t = 0; t < draft_.plan.iterations; ++t) {
      const std::int64_t* index = draft_.IndexIn(read.index, t);
      if (index == nullptr || *index < 0 || *index >= size) return false;
      read.is_other.push_back(written.count(*index) != 0);
      if (write == nullptr) continue;
      const std::int64_t* to = draft_.IndexIn(write->index, t);
      if (to == nullptr) return false;
      written.insert(*to);
    }
    if (std::none_of(read.is_other.begin(), read.is_other.end(), [](bool is) { return is; })) {
      read.is_other.clear();
      return true;
    }
    if (write->is_number) return false;
    const Memory& other = draft_.plan.memories[write->view.memory];
    read.other = write->view.memory;
    const auto& items = draft_.given.lists[read.list]->tensors();
    return other.where == Memory::Where::kFixed && !other.bytes &&
           other.dimensions == DimensionsOf(items[0]);
  }

  bool IsWritable(int list, const ListWrite& write) const {
    const tensorflow::TensorList& given = *draft_.given.lists[list];
    const auto size = static_cast<std::int64_t>(given.tensors().size());
    const Dimensions* dimensions = DimensionsOfItem(write);
    if (dimensions == nullptr ||
        !given.element_shape.IsCompatibleWith(tensorflow::TensorShape(*dimensions))) {
      return false;
    }
    if (write.how == ListWrite::How::kPush) {
      return given.max_num_elements == -1 ||
             size + draft_.plan.iterations <= given.max_num_elements;
    }
    std::set<std::int64_t> seen;
    for (std::int64_t t = 0; t < draft_.plan.iterations; ++t) {
      const std::int64_t* index = draft_.IndexIn(write.index, t);
      if (index == nullptr || *index < 0 || *index >= size) return false;
      if (!seen.insert(*index).second && write.how == ListWrite::How::kAdd) return false;
    }
    return true;
  }

  // None where it is not known what the loop puts into the list.
  const Dimensions* DimensionsOfItem(const ListWrite& write) const {
    if (!write.is_number) return &draft_.plan.memories[write.view.memory].dimensions;
    if (write.constant >= 0) return &draft_.facts[write.value].numbers.dimensions;
    const auto found = draft_.plan.counters.find(write.value);
    return found == draft_.plan.counters.end() ? nullptr : &found->second.dimensions;
  }

  // Whether what is written lies where no state and no other list has it.
  bool IsAlone(int list, const ListWrite& write) const {
    if (write.is_number) return false;
    const auto& [states, writes] = std::tie(draft_.plan.states, draft_.plan.writes);
    const auto is_there = [&](const View& view) { return view.memory == write.view.memory; };
    return std::none_of(states.begin(), states.end(),
                        [&](const auto& each) { return is_there(each.second); }) &&
           std::none_of(writes.begin(), writes.end(), [&](const auto& each) {
             return each.first != list && is_there(each.second.view);
           });
  }

  Draft& draft_;
  std::map<int, Fact> copies_;  // Value → what of it goes into lists.
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_LISTS_H_
