// Messages put together from texts and numbers.
#ifndef BK_JAX_XLA_PLUGIN_TEXT_H_
#define BK_JAX_XLA_PLUGIN_TEXT_H_

#include <sstream>
#include <string>

namespace bk {

// StrCat("rank ", 2) is "rank 2".
template <class... Parts>
std::string StrCat(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

// StrJoin(std::vector{2, 3}, ",") is "2,3".
template <class Items>
std::string StrJoin(const Items& items, const char* between) {
  std::ostringstream text;
  const char* before = "";
  for (const auto& item : items) {
    text << before << item;
    before = between;
  }
  return text.str();
}

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_TEXT_H_
