/* Rendered from dispatcher_targets.h.j2: the kernel libraries of this wheel, the preferred first. */
#define TW_FOLDER "tensorwright"

static const struct tw_feature tw_features_0[] = {
    {"aes", AT_HWCAP, 3},
    {"asimd", AT_HWCAP, 1},
    {"asimddp", AT_HWCAP, 20},
    {"asimdfhm", AT_HWCAP, 23},
    {"asimdhp", AT_HWCAP, 10},
    {"asimdrdm", AT_HWCAP, 12},
    {"atomics", AT_HWCAP, 8},
    {"bf16", AT_HWCAP2, 14},
    {"crc32", AT_HWCAP, 7},
    {"fcma", AT_HWCAP, 14},
    {"fp", AT_HWCAP, 0},
    {"fphp", AT_HWCAP, 9},
    {"i8mm", AT_HWCAP2, 13},
    {"ilrcpc", AT_HWCAP, 26},
    {"lrcpc", AT_HWCAP, 15},
    {"pmull", AT_HWCAP, 4},
    {"sha3", AT_HWCAP, 17},
    {"sve", AT_HWCAP, 22},
    {"svebf16", AT_HWCAP2, 12},
    {"svei8mm", AT_HWCAP2, 9},
    {"uscat", AT_HWCAP, 25},
    {.name = NULL},
};

static const struct tw_target tw_targets[] = {
    {"neoverse.v1", "libtensorwright_kernels.neoverse.v1.so", tw_features_0},
};
