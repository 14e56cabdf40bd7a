// The environment variables that turn fused ops on and off, and verify them.

#ifndef TENSORWRIGHT_GRAPH_SWITCHES_H_
#define TENSORWRIGHT_GRAPH_SWITCHES_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace tensorwright {

// Whether TENSORWRIGHT_FUSE turns on `part`, such as "updates". Its value is a list of words,
// separated by commas:
//
// - "0" or "off" turns off all parts;
// - "-a" turns off part a;
// - "a" turns on part a, and turns off all parts that are not named;
// - "1" and empty words have no effect.
//
// Args:
//   part: the name of a group of fused ops.
//   enabled_by_default: the result if no word turns the part on or off.
inline bool IsFusionEnabled(const std::string& part, bool enabled_by_default = true) {
  const char* value = std::getenv("TENSORWRIGHT_FUSE");
  const std::string words = value == nullptr ? "" : value;
  bool only = false, named = false;
  for (std::size_t at = 0; at < words.size();) {
    const std::size_t end = std::min(words.find(',', at), words.size());
    const std::string word = words.substr(at, end - at);
    if (word == "0" || word == "off" || word == "-" + part) return false;
    if (!word.empty() && word[0] != '-' && word != "1") only = true;
    if (word == part) named = true;
    at = end + 1;
  }
  return named || (enabled_by_default && !only);
}

// Whether TF_GRAPH_CACHING names a folder, where TensorFlow stores graphs that it has prepared. A
// stock TensorFlow that shares the folder has no fused ops.
inline bool AreGraphsStored() {
  const char* folder = std::getenv("TF_GRAPH_CACHING");
  return folder != nullptr && *folder != '\0';
}

// Returns the whole number that `value` of TENSORWRIGHT_VERIFY is, 0 if it is null or empty, or -1 if
// it is anything else.
inline std::int64_t ReadInterval(const char* value) {
  const std::string text = value == nullptr ? "" : value;
  constexpr std::size_t kMostDigits = 15;
  if (text.size() > kMostDigits || text.find_first_not_of("0123456789") != std::string::npos) {
    return -1;
  }
  return text.empty() ? 0 : std::atoll(text.c_str());
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_GRAPH_SWITCHES_H_
