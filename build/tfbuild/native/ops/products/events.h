// The counters of fused/products.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_EVENTS_H_
#define TENSORWRIGHT_OPS_PRODUCTS_EVENTS_H_

#include "tensorwright/graph/events.h"
#include "tensorwright/graph/verification.h"

namespace tensorwright {

inline VerifiedGroup products_group("products");

namespace events {

inline EventCounter products(
    "products");  // Matrix products, convolutions and gradients that were replaced.
inline EventCounter product_runs("product executions");  // Executions by this library.
inline EventCounter unsupported_product(
    "left: product");  // An attribute, such as type or layout, is not supported.
inline EventCounter stock_product(
    "stock: product");  // Executions by the stock kernel, because of the shapes.
inline EventCounter wider_vectors("left: wider vectors");  // oneDNN uses wider vectors here.

}  // namespace events
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_EVENTS_H_
