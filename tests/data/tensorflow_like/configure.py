"""Asks as TensorFlow's configure.py does: the environment answers, or nobody."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_QUESTIONS = (
    ("PYTHON_BIN_PATH", "Please specify the location of python. "),
    ("TF_NEED_ROCM", "Do you wish to build TensorFlow with ROCm support? [y/N]: "),
    ("TF_NEED_CUDA", "Do you wish to build TensorFlow with CUDA support? [y/N]: "),
    ("TF_NEED_CLANG", "Do you want to use Clang to build TensorFlow? [Y/n]: "),
    ("CC_OPT_FLAGS", "Please specify optimization flags to use during compilation: "),
    ("TF_SET_ANDROID_WORKSPACE", "Configure the ./WORKSPACE for Android builds? [y/N]: "),
)


def main() -> None:
    answers = {name: get_from_env_or_user(name, question) for name, question in _QUESTIONS}
    if answers["TF_NEED_CLANG"] == "1":
        answers["CLANG_COMPILER_PATH"] = get_from_env_or_user(
            "CLANG_COMPILER_PATH", "Please specify the path to clang executable: "
        )
    lines = [f'build --action_env PYTHON_BIN_PATH="{answers["PYTHON_BIN_PATH"]}"']
    if "CLANG_COMPILER_PATH" in answers:
        lines.append(f'build --action_env CLANG_COMPILER_PATH="{answers["CLANG_COMPILER_PATH"]}"')
        lines.append(f"build --repo_env=CC={answers['CLANG_COMPILER_PATH']}")
    for flag in answers["CC_OPT_FLAGS"].split():
        lines += [f"build:opt --copt={flag}", f"build:opt --host_copt={flag}"]
    Path(".tf_configure.bazelrc").write_text("\n".join(lines) + "\n", encoding="utf-8")


def get_from_env_or_user(name: str, question: str) -> str:
    answer = os.environ.get(name)
    if answer is None:
        sys.exit(f"{question}\nEOF: {name} was not answered")
    return answer


if __name__ == "__main__":
    main()
