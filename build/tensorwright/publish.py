"""The commands for package indexes."""

from __future__ import annotations

from tensorwright.command import command, print_text
from tfbuild.commands import JSON, Output
from tfwheels.commands import (
    CheckIndexOptions,
    CheckInstalledOptions,
    PublishOptions,
    ServeOptions,
    SnippetOptions,
)

GROUP = "publish"


@command(GROUP, PublishOptions, JSON, common=True)
def publish(options: PublishOptions, output: Output) -> str:
    """Audit wheels, check their comparisons and publish them to a private index."""
    from tfwheels import handlers

    return handlers.publish_wheels(options, as_json=output.json)


@command(GROUP, ServeOptions)
def serve(options: ServeOptions) -> None:
    """Serve an index on this machine, to try it out, until you press Ctrl-C."""
    from tfwheels import serve as server

    server.serve(options.at, options.port, options.trust)


@command(GROUP, SnippetOptions, JSON, common=True)
def install_snippet(options: SnippetOptions, output: Output) -> str:
    """Print the pip and uv commands and the requirements.txt lines that install from an index."""
    from tfwheels import handlers

    return handlers.describe_install(options, as_json=output.json)


@command(GROUP, CheckIndexOptions, JSON)
def check_index(options: CheckIndexOptions, output: Output) -> None:
    """Verify the signature of an index and the files that it lists."""
    from tfwheels import check_index as checking
    from tfwheels import handlers

    checked, text = handlers.check_served_index(options, as_json=output.json)
    print_text(text)
    checking.require_sound(checked)


@command(GROUP, CheckInstalledOptions, JSON)
def check_installed(options: CheckInstalledOptions, output: Output) -> None:
    """Check whether the TensorFlow in an environment was withdrawn from its index."""
    from tfwheels import check_installed as checking
    from tfwheels import handlers

    checked, text = handlers.check_environment(options, as_json=output.json)
    print_text(text)
    checking.require_listed(checked, options.at)
