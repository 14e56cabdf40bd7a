"""Tolerances: how far the results of two builds of an op's kernel may differ."""

from __future__ import annotations

# In units in the last place; 0 where IEEE 754 requires one result.
ULPS = 32.0
# CenteredRMSProp takes the root of a mean square minus a squared mean, which amplifies errors.
CANCELLING_ULPS = 1024.0

# IEEE 754 requires one result of these operations.
ARITHMETIC = {
    *("Add", "AddV2", "Sub", "Mul", "MulNoNan", "Neg", "Maximum", "Minimum", "Square", "Sqrt"),
    *("Abs", "Sign", "Floor", "Ceil", "Rint", "Round", "Div", "RealDiv", "DivNoNan", "TruncateDiv"),
    *("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual", "Select", "SelectV2"),
    *("Relu", "ReluGrad", "Relu6", "Relu6Grad", "RandomUniform", "RandomUniformInt"),
    *("ClipByValue", "SquaredDifference", "NextAfter", "Real", "Imag", "Conj", "Max", "Min"),
    *("IsNan", "IsInf", "IsFinite", "ApproximateEqual", "ArgMax", "ArgMin", "Cast", "BiasAdd"),
    *("StatelessRandomUniform", "StatelessRandomUniformV2", "StatefulUniform", "RandomShuffle"),
}
# These ops only move or select elements.
MOVES = {
    *("BatchToSpace", "BatchToSpaceND", "Bitcast", "BroadcastTo", "Concat", "ConcatV2"),
    *("DepthToSpace", "Diag", "DiagPart", "DynamicPartition", "DynamicStitch", "Empty"),
    *("ExpandDims", "ExtractImagePatches", "ExtractVolumePatches", "Fill", "Gather", "GatherNd"),
    *("GatherV2", "Identity", "IdentityN", "InplaceUpdate", "MatrixBandPart", "MatrixDiag"),
    *("MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3", "MatrixDiagV2", "MatrixDiagV3"),
    *("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3", "MaxPool", "MaxPool3D", "MaxPoolV2"),
    *("MaxPoolWithArgmax", "MirrorPad", "OneHot", "OnesLike", "Pack", "Pad", "PadV2"),
    *("ParallelConcat", "ParallelDynamicStitch", "RefSelect", "RefSwitch", "Reshape"),
    *("ResizeNearestNeighbor", "ResourceGather", "ResourceGatherNd", "ResourceScatterMax"),
    *("ResourceScatterMin", "ResourceScatterNdUpdate", "ResourceScatterUpdate"),
    *("ResourceStridedSliceAssign", "Reverse", "ReverseSequence", "ReverseV2", "Roll"),
    *("ScatterMax", "ScatterMin", "ScatterNdUpdate", "ScatterUpdate", "SegmentMax", "SegmentMin"),
    *("Slice", "Snapshot", "SpaceToBatch", "SpaceToBatchND", "SpaceToDepth", "Split", "SplitV"),
    *("Squeeze", "StopGradient", "StridedSlice", "StridedSliceAssign", "StridedSliceGrad"),
    *("Switch", "TensorListFromTensor", "TensorListGather", "TensorListGetItem"),
    *("TensorListStack", "TensorScatterMax", "TensorScatterMin", "TensorScatterUpdate"),
    *("TensorStridedSliceUpdate", "Tile", "TopK", "TopKV2", "Transpose", "ConjugateTranspose"),
    *("Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2", "Unpack"),
    *("UnsortedSegmentMax", "UnsortedSegmentMin", "Where", "ZerosLike"),
}
EXACT = ARITHMETIC | MOVES

# Sums of products of the inputs' elements: an error is relative to the sum of the terms'
# magnitudes, which the stock kernel computes from the inputs' magnitudes.
TERMS = {
    *("AccumulateNV2", "AddN", "AvgPool", "AvgPool3D", "AvgPool3DGrad", "AvgPoolGrad"),
    *("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "BiasAddGrad", "Bincount", "Conv2D"),
    *("Conv2DBackpropFilter", "Conv2DBackpropInput", "Conv3D", "Conv3DBackpropFilter"),
    *("Conv3DBackpropFilterV2", "Conv3DBackpropInput", "Conv3DBackpropInputV2", "Cross", "Cumsum"),
    *("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropFilter", "DenseBincount"),
    *("DepthwiseConv2dNativeBackpropInput", "Einsum", "FusedPadConv2D", "L2Loss", "MatMul", "Mean"),
    *("MirrorPadGrad", "ResizeArea", "ResizeBilinear", "ResizeBilinearGrad", "SegmentMean"),
    *("ResizeNearestNeighborGrad", "SegmentSum", "SparseMatMul", "SparseSegmentMean"),
    *("SparseSegmentSqrtN", "SparseSegmentSum", "SparseTensorDenseMatMul", "Sum", "TileGrad"),
    *("TridiagonalMatMul", "UnsortedSegmentSum", "_FusedConv2D", "_FusedMatMul"),
}

# Each result depends on one element of each input, by a transcendental or similar function.
ELEMENTWISE = {
    *("Tanh", "TanhGrad", "Sigmoid", "SigmoidGrad", "Exp", "Expm1", "Log", "Log1p", "Erf", "Erfc"),
    *("Softplus", "SoftplusGrad", "Softsign", "SoftsignGrad", "SqrtGrad", "Rsqrt", "RsqrtGrad"),
    *("Inv", "InvGrad", "Reciprocal", "ReciprocalGrad", "Sin", "Cos", "Tan", "Sinh", "Cosh"),
    *("Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh", "Pow", "Atan2", "Xlogy", "Xdivy"),
    *("Xlog1py", "Elu", "EluGrad", "Selu", "SeluGrad", "LeakyRelu", "LeakyReluGrad", "ComplexAbs"),
    *("FloorDiv", "FloorMod", "Mod", "TruncateMod", "Angle", "Ndtri", "Erfinv"),
    *("RandomStandardNormal", "TruncatedNormal", "StatelessRandomNormal"),
    *("StatelessRandomNormalV2", "StatelessTruncatedNormal", "StatelessTruncatedNormalV2"),
    *("StatefulStandardNormal", "StatefulStandardNormalV2", "StatefulTruncatedNormal"),
}
# Errors of all others are relative to the size of the whole result: these ops add up terms of
# different magnitude (a row's exponentials, a step and a parameter), or pass such sums on.


def is_scaled_by_result(op: str) -> bool:
    """Return whether an error is measured relative to the size of the whole result, not element
    by element.
    """
    return op not in EXACT | ELEMENTWISE


def get_allowed_distance(op: str, *, real: bool) -> float:
    """Return the largest allowed distance in units in the last place. IEEE 754 demands one
    result of a real product, not of a complex one, which is a sum of products.
    """
    if op in MOVES or (op in EXACT and real):
        return 0.0
    return CANCELLING_ULPS if op.endswith("CenteredRMSProp") else ULPS
