// Evaluates a kernel's registration at compile time. A kernel that is not selected is left out
// before its class is instantiated, which saves most of its compile time.

#ifndef TENSORWRIGHT_DEFINITION_H_
#define TENSORWRIGHT_DEFINITION_H_

#include <cstddef>
#include <initializer_list>
#include <string_view>

#include "tensorflow/core/framework/types.h"

namespace tensorwright {

// A kernel in the table: its op, and its types as registration.h writes them.
struct Row {
  const char* op;
  const char* types;
};

#include "tensorwright/compiled.inc"  // The generated table kCompiled[].

// Text of at most kMost characters. Longer text is a compile error.
class Text {
 public:
  constexpr void Add(std::string_view text) {
    for (const char each : text) letters_[size_++] = each;
  }
  constexpr void Add(int number) {
    if (number >= 10) Add(number / 10);
    letters_[size_++] = static_cast<char>('0' + number % 10);
  }
  constexpr std::string_view view() const { return {letters_, size_}; }

 private:
  static constexpr std::size_t kMost = 256;
  char letters_[kMost] = {};
  std::size_t size_ = 0;
};

// Replaces KernelDefBuilder (tensorflow/core/framework/kernel_def_builder.h) at compile time: it
// has the same methods. A constraint on anything other than types lists no types.
class Definition {
 public:
  constexpr explicit Definition(const char* op) : op_(op) {}

  constexpr Definition& Device(const char* device) {
    device_ = device;
    return *this;
  }
  template <class T>
  constexpr Definition& TypeConstraint(const char* attribute) {
    return TypeConstraint(attribute, ::tensorflow::DataTypeToEnum<T>::value);
  }
  constexpr Definition& TypeConstraint(const char* attribute, ::tensorflow::DataType type) {
    return TypeConstraint(attribute, std::initializer_list<::tensorflow::DataType>{type});
  }
  constexpr Definition& TypeConstraint(const char* attribute,
                                       std::initializer_list<::tensorflow::DataType> types) {
    Text& part = parts_[count_++];
    part.Add(attribute);
    part.Add("=");
    const char* between = "";
    for (const auto type : types) {
      part.Add(between);
      part.Add(static_cast<int>(type));
      between = "|";
    }
    return *this;
  }
  template <class Value>
  constexpr Definition& AttrConstraint(const char* attribute, Value) {
    return TypeConstraint(attribute, std::initializer_list<::tensorflow::DataType>{});
  }
  constexpr Definition& HostMemory(const char*) { return *this; }
  constexpr Definition& Priority(int) { return *this; }
  constexpr Definition& Label(const char* label) {
    label_ = label;
    return *this;
  }

  // Whether this is a CPU kernel in the table.
  constexpr bool IsCompiled() const {
    if (device_ != std::string_view("CPU")) return false;
    const Text types = Types();
    for (const Row& row : kCompiled) {
      if (op_ == std::string_view(row.op) && types.view() == row.types) return true;
    }
    return false;
  }

 private:
  static constexpr int kMost = 8;  // Maximum number of constraints.

  // Returns the same text as Types() in registration.h does for a KernelDef.
  constexpr Text Types() const {
    Text all;
    bool written[kMost] = {};
    for (int number = 0; number < count_; ++number) {
      int first = -1;
      for (int i = 0; i < count_; ++i) {
        if (!written[i] && (first < 0 || parts_[i].view() < parts_[first].view())) first = i;
      }
      written[first] = true;
      if (number > 0) all.Add(",");
      all.Add(parts_[first].view());
    }
    if (*label_ != '\0') {
      all.Add(";");
      all.Add(label_);
    }
    return all;
  }

  const char* const op_;
  const char* device_ = "";
  const char* label_ = "";
  Text parts_[kMost];
  int count_ = 0;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_DEFINITION_H_
