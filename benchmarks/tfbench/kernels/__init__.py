"""Selection of kernels: profile programs, time kernels at call sites, keep the faster ones."""
