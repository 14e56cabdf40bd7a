/* Rendered from dispatcher_targets.h.j2: the kernel libraries of this wheel, the preferred first. */
#define TW_FOLDER "tensorwright"

static const struct tw_feature tw_features_0[] = {
    {"abm", 0x80000001, 0, TW_ECX, 5, 0x0},
    {"aes", 0x1, 0, TW_ECX, 25, 0x0},
    {"avx", 0x1, 0, TW_ECX, 28, 0x6},
    {"avx2", 0x7, 0, TW_EBX, 5, 0x6},
    {"bmi1", 0x7, 0, TW_EBX, 3, 0x0},
    {"bmi2", 0x7, 0, TW_EBX, 8, 0x0},
    {"cx16", 0x1, 0, TW_ECX, 13, 0x0},
    {"f16c", 0x1, 0, TW_ECX, 29, 0x6},
    {"fma", 0x1, 0, TW_ECX, 12, 0x6},
    {"lahf_lm", 0x80000001, 0, TW_ECX, 0, 0x0},
    {"mmx", 0x1, 0, TW_EDX, 23, 0x0},
    {"movbe", 0x1, 0, TW_ECX, 22, 0x0},
    {"pclmulqdq", 0x1, 0, TW_ECX, 1, 0x0},
    {"popcnt", 0x1, 0, TW_ECX, 23, 0x0},
    {"sse", 0x1, 0, TW_EDX, 25, 0x0},
    {"sse2", 0x1, 0, TW_EDX, 26, 0x0},
    {"sse3", 0x1, 0, TW_ECX, 0, 0x0},
    {"sse4_1", 0x1, 0, TW_ECX, 19, 0x0},
    {"sse4_2", 0x1, 0, TW_ECX, 20, 0x0},
    {"sse4a", 0x80000001, 0, TW_ECX, 6, 0x0},
    {"ssse3", 0x1, 0, TW_ECX, 9, 0x0},
    {"vaes", 0x7, 0, TW_ECX, 9, 0x6},
    {"vpclmulqdq", 0x7, 0, TW_ECX, 10, 0x6},
    {.name = NULL},
};

static const struct tw_target tw_targets[] = {
    {"zen3", "libtensorwright_kernels.zen3.so", tw_features_0},
};
