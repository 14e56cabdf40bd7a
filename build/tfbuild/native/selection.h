// Which registrations of a library take the place of the stock ones.

#ifndef TENSORWRIGHT_SELECTION_H_
#define TENSORWRIGHT_SELECTION_H_

namespace tensorwright {

// Whether the kernel of `op` for `types` (as registration.h writes them) is to be registered.
bool Selected(const char* op, const char* types);

}  // namespace tensorwright

#endif  // TENSORWRIGHT_SELECTION_H_
