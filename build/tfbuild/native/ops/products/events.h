// The counters of the group fused/products.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_EVENTS_H_
#define TENSORWRIGHT_OPS_PRODUCTS_EVENTS_H_

#include "tensorwright/graph/events.h"

namespace tensorwright::events {

inline EventCounter products(
    "products");  // Products, convolutions and their gradients that were replaced.
inline EventCounter product_runs("product executions");  // Executions by our kernels.
inline EventCounter unsupported_product(
    "left: product");  // Type, layout or following op is not supported.
inline EventCounter stock_product(
    "stock: product");  // The stock kernel is as fast at these shapes.
inline EventCounter wider_vectors("left: wider vectors");  // oneDNN has wider vectors on this CPU.

}  // namespace tensorwright::events

#endif  // TENSORWRIGHT_OPS_PRODUCTS_EVENTS_H_
