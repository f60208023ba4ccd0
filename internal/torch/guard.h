// An exception becomes a message.
#pragma once
#include <c10/util/Exception.h>

#include <cstring>
#include <exception>

namespace agt {

// 0, or 1 with *err for the caller to free.
template <class F>
int guarded(char **err, F f) {
  try {
    f();
    return 0;
  } catch (const c10::Error &e) {
    *err = strdup(e.what_without_backtrace());
  } catch (const std::exception &e) {
    *err = strdup(e.what());
  }
  return 1;
}

}  // namespace agt
