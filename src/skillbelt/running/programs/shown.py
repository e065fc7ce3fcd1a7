"""The folders of programs that a run sees beside those of the system."""

from __future__ import annotations

import os

from skillbelt.running.programs.folder import PROGRAMS, provide_programs
from skillbelt.running.programs.outside import folder_of_programs
from skillbelt.running.run import Run
from skillbelt.sandbox.registry import CONTAINER, WASM
from skillbelt.settings import Settings, process_environment
from skillbelt.text import one_line


def show_programs(run: Run, settings: Settings) -> None:
    """Set the folders of programs beside the system's; a module needs none."""
    if run.sandbox.name == WASM:
        return
    run.programs = provide_programs(
        os.path.join(os.path.dirname(run.workspace.path), PROGRAMS),
        path=process_environment().get("PATH", ""),
        project=settings.project,
        foreign=run.sandbox.name == CONTAINER and bool(settings.container_image),
    )
    for path in settings.program_folders:
        try:
            run.program_folders += (folder_of_programs(path),)
        except ValueError as error:
            run.warnings += (f"program_folders: {one_line(path)} is not shown: {error}",)
