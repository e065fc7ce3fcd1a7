"""Take the pictures of the console for the documentation, in a real browser on a real project.

The project has the example skills; two requests wait, some runs have ended. `tests/console` takes
the same steps.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parents[1]
PICTURES = HERE / "docs" / "pictures"
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
RULES = '[permission]\nrun = { "*" = "ask", "ls *" = "allow" }\n'
PATIENCE = 120_000


def main() -> None:
    """Take the pictures."""
    folder = Path(tempfile.mkdtemp(prefix="console-"))
    project, home = folder / "project", folder / "home"
    shutil.copytree(HERE / "examples" / "skills", project / ".agents" / "skills")
    (home / ".config" / "skillbelt").mkdir(parents=True)
    (home / ".config" / "skillbelt" / "config.toml").write_text(RULES, "utf-8")
    env = {**os.environ, "HOME": str(home), "USER": "ada"}
    env |= {f"XDG_{one}_HOME": str(home / one.lower()) for one in ("STATE", "CACHE")}
    env["XDG_CONFIG_HOME"] = str(home / ".config")
    command = [sys.executable, "-m", "skillbelt"]
    started = [subprocess.Popen([*command, "console", "--port", "0", "--json"], cwd=project,
                                env=env, stdout=subprocess.PIPE, text=True)]  # fmt: skip
    try:
        assert started[0].stdout is not None
        facts = json.loads("".join(iter(started[0].stdout.readline, "}\n")) + "}")
        for name in ("text-stats", "json-diff"):
            subprocess.run(
                [*command, "run", name, "--", "ls", "-lR", "--color=always"],
                cwd=project,
                env=env,
                check=True,
                capture_output=True,
                stdin=subprocess.DEVNULL,
            )
        for words in (["make", "report"], ["curl", "-s", "https://example.com/data.csv"]):
            started.append(subprocess.Popen([*command, "run", "csv-report", "--", *words],
                                            cwd=project, env=env, stdin=subprocess.DEVNULL,
                                            stderr=subprocess.DEVNULL, text=True))  # fmt: skip
        _take(facts)
    finally:
        for one in started:
            one.terminate()
            one.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _take(facts: dict[str, str]) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=list(FLAGS), timeout=PATIENCE
        )
        size: Any = {"width": 1200, "height": 760}
        context = browser.new_context(viewport=size, color_scheme="light")
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.goto(facts["link"])
        page.wait_for_url(f"{facts['url']}/")
        page.wait_for_function("document.querySelectorAll('[data-card]').length === 2")
        page.evaluate("document.fonts.ready")
        time.sleep(0.5)  # for a picture only: the last font is drawn
        page.screenshot(path=PICTURES / "console-inbox.png")
        page.emulate_media(color_scheme="dark")
        page.goto(f"{facts['url']}/runs")
        page.click("tbody a")
        page.wait_for_selector(".terminal")
        page.screenshot(path=PICTURES / "console-run.png")
        browser.close()


if __name__ == "__main__":
    main()
