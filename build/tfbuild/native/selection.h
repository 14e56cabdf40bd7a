// Says which kernels of a library are registered and so replace the stock ones.

#ifndef TENSORWRIGHT_SELECTION_H_
#define TENSORWRIGHT_SELECTION_H_

namespace tensorwright {

// Whether to register the kernel of `op` for `types`, which are written as in registration.h.
bool IsSelected(const char* op, const char* types);

}  // namespace tensorwright

#endif  // TENSORWRIGHT_SELECTION_H_
