// TENSORWRIGHT_FUSE: which parts of this library fuse.

#ifndef TENSORWRIGHT_GRAPH_SWITCHES_H_
#define TENSORWRIGHT_GRAPH_SWITCHES_H_

#include <algorithm>
#include <cstdlib>
#include <string>

namespace tensorwright {

// Whether TENSORWRIGHT_FUSE lets a part work: "0" none, "a,b" these, "-a" all but this one.
// `unnamed` is whether it works where it is not named.
inline bool Wanted(const std::string& part, bool unnamed = true) {
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
  return named || (unnamed && !only);
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_GRAPH_SWITCHES_H_
