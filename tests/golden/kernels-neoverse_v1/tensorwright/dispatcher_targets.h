/* Rendered from dispatcher_targets.h.j2: the kernel libraries of this wheel, the preferred first. */
#define TW_FOLDER "tensorwright"

static const struct tw_feature tw_features_0[] = {
    {NULL, 0, 0, TW_EAX, 0, 0},
};

static const struct tw_target tw_targets[] = {
    {"neoverse.v1", "libtensorwright_kernels.neoverse.v1.so", tw_features_0},
};
